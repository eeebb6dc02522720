package sparsefw

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"regexp"
	"strings"
	"time"
)

// MaxChunkBytes is the most data that one message may carry.
const MaxChunkBytes = 2<<20 - 4<<10

type options struct {
	connectTimeout, callTimeout, watchSilence time.Duration
	retry                                     RetryPolicy
	chunkBytes                                int
	windowBytes                               int
	owner, token, traceparent                 string
	tls                                       *tls.Config
	onRetry                                   func(error, time.Duration)
}

// Option changes how a Client works.
type Option func(*options) error

func defaults() options {
	return options{
		connectTimeout: 5 * time.Second,
		callTimeout:    2 * time.Minute,
		watchSilence:   30 * time.Second,
		retry:          DefaultRetry,
		chunkBytes:     1 << 20,
		windowBytes:    64 << 20,
	}
}

// WithConnectTimeout limits the wait for the first connection; 5 s otherwise.
func WithConnectTimeout(limit time.Duration) Option {
	return func(o *options) error { o.connectTimeout = limit; return positive("connect timeout", limit) }
}

// WithCallTimeout limits one attempt of a call that is not a stream; 2 minutes otherwise. There are
// at most three.
func WithCallTimeout(limit time.Duration) Option {
	return func(o *options) error { o.callTimeout = limit; return positive("call timeout", limit) }
}

// WithWatchSilence is how long nothing, not even a heartbeat, may come on a watch (or a download) before it is
// opened anew; 30 s otherwise. A download counts whole chunks of 1 MiB: a line below 35 KB/s needs more.
func WithWatchSilence(limit time.Duration) Option {
	return func(o *options) error { o.watchSilence = limit; return positive("watch silence", limit) }
}

// WithRetry replaces DefaultRetry.
func WithRetry(policy RetryPolicy) Option {
	return func(o *options) error {
		if policy.Initial <= 0 || policy.Max < policy.Initial || !(policy.Multiplier >= 1) ||
			math.IsInf(policy.Multiplier, 1) || policy.GiveUpAfter < 0 {
			return argument("a retry policy must have 0 < Initial <= Max, a finite Multiplier >= 1 and "+
				"GiveUpAfter >= 0; got %+v", policy)
		}
		o.retry = policy
		return nil
	}
}

// WithOnRetry is told of every attempt that failed and is made again after the wait, in the
// goroutine of the call.
func WithOnRetry(observer func(err error, wait time.Duration)) Option {
	return func(o *options) error { o.onRetry = observer; return nil }
}

// WithChunkBytes is the data in one message, 1 MiB otherwise, at most MaxChunkBytes.
func WithChunkBytes(size int) Option {
	return func(o *options) error {
		if size < 1 || size > MaxChunkBytes {
			return argument("chunk bytes must be 1 to %d; got %d", MaxChunkBytes, size)
		}
		o.chunkBytes = size
		return nil
	}
}

// WithWindowBytes is how much of an io.Reader is kept for the case of a broken connection, until the
// server has it on its disk; 64 MiB otherwise.
func WithWindowBytes(size int) Option {
	return func(o *options) error {
		if size < 1 {
			return argument("window bytes must be at least 1; got %d", size)
		}
		o.windowBytes = size
		return nil
	}
}

// WithOwner is recorded by the server with every tensor and job.
func WithOwner(owner string) Option {
	return func(o *options) error { o.owner = owner; return nil }
}

// WithToken is sent with every call, over TLS and to this machine only: Dial refuses it otherwise,
// since others on the way could read it. It has printable ASCII characters and no space.
func WithToken(token string) Option {
	return func(o *options) error {
		for i := 0; i < len(token); i++ {
			if token[i] <= 0x20 || token[i] >= 0x7f { // what no header holds; the message does not show it
				return argument("a token must have printable ASCII characters only, and no space; got one of %d bytes "+
					"with another character", len(token))
			}
		}
		o.token = token
		return nil
	}
}

// WithTLS secures the connection. A nil configuration trusts the roots of this machine.
func WithTLS(config *tls.Config) Option {
	return func(o *options) error {
		if config == nil {
			config = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		o.tls = config
		return nil
	}
}

// WithTLSFiles secures the connection with PEM files: the CA that signed the server's certificate
// ("": the roots of this machine), and a certificate and key of one's own for mutual TLS ("", "":
// none).
func WithTLSFiles(ca, certificate, key string) Option {
	return func(o *options) error {
		config := &tls.Config{MinVersion: tls.VersionTLS12}
		if ca != "" {
			pem, err := os.ReadFile(ca)
			if err != nil {
				return argument("the CA file must be readable: %v", err)
			}
			config.RootCAs = x509.NewCertPool()
			if !config.RootCAs.AppendCertsFromPEM(pem) {
				return argument("%s must hold a certificate in PEM; it does not", ca)
			}
		}
		if (certificate == "") != (key == "") {
			return argument("a certificate and its key must be given together")
		}
		if certificate != "" {
			pair, err := tls.LoadX509KeyPair(certificate, key)
			if err != nil {
				return argument("%s and %s must be a certificate and its key: %v", certificate, key, err)
			}
			config.Certificates = []tls.Certificate{pair}
		}
		o.tls = config
		return nil
	}
}

// WithTraceparent is a W3C trace context that the server logs with this client's calls and jobs; a
// new one otherwise.
func WithTraceparent(traceparent string) Option {
	return func(o *options) error {
		if traceparent != "" && !isTraceparent(traceparent) {
			return argument("traceparent must be 00-<32 hex>-<16 hex>-<2 hex> in lower case; got %d bytes",
				len(traceparent))
		}
		o.traceparent = traceparent
		return nil
	}
}

var traceparents = regexp.MustCompile(`^00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}$`)

// isTraceparent: an identifier of nothing but zeros means none.
func isTraceparent(text string) bool {
	found := traceparents.FindStringSubmatch(text)
	return found != nil && strings.Trim(found[1], "0") != "" && strings.Trim(found[2], "0") != ""
}

func positive(what string, value time.Duration) error {
	if value <= 0 {
		return argument("%s must be above 0; got %s", what, value)
	}
	return nil
}

func randomHex(bytes int) string {
	data := make([]byte, bytes)
	if _, err := rand.Read(data); err != nil {
		panic(fmt.Sprintf("sparsefw: no random numbers: %v", err)) // the system is broken
	}
	return hex.EncodeToString(data)
}

func newTraceparent() string { return "00-" + randomHex(16) + "-" + randomHex(8) + "-00" }

// NewRequestID is a name for a call that can be made again, also by a later process.
func NewRequestID() string { return randomHex(16) }
