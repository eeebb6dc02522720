package sparsefw_test

import (
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"

	sparsefw "github.com/sparsefw/sparsefw/client/go"
	v1 "github.com/sparsefw/sparsefw/client/go/v1"
)

func TestWhatIsNoAddressIsRefusedAtOnce(t *testing.T) {
	for _, address := range []string{
		"", "localhost", "127.0.0.1", ":50051", "localhost:", "localhost:0", "localhost:65536", "localhost:99999999",
		"localhost:http", "localhost:-1", "localhost:+1", "http://localhost:1", "https://localhost:1", "localhost:1/", "a b:1",
		" localhost:1", "localhost: 1", "localhost:1 ", "localhost\t:1", "::1", "::1:50051", "[::1]", "[::1", "[::1]50051",
		"[localhost]:1", "[127.0.0.1]:1", "[]:1", "unix:", "ftp:///x", "localhost:1,", ",localhost:1", "localhost:1,,localhost:2",
		"localhost:1, localhost:2", "localhost:1,http://localhost",
	} {
		for what, opts := range map[string][]sparsefw.Option{"": nil, "with a token": {sparsefw.WithToken("secret")}} {
			start := time.Now()
			_, err := sparsefw.Dial(ctx, address, append(opts, sparsefw.WithConnectTimeout(time.Millisecond))...)
			if sparsefw.ReasonOf(err) != "CLIENT_ARGUMENT" || !strings.Contains(err.Error(), "an address must be HOST:PORT") {
				t.Errorf("%q %s: %v", address, what, err)
			}
			if took := time.Since(start); took > time.Second {
				t.Errorf("%q %s: refused after %s", address, what, took)
			}
		}
	}
}

func TestWhatGRPCResolvesIsAnAddress(t *testing.T) {
	addresses := []string{
		"127.0.0.1:1", "localhost:65535", "a.example:1", "[::1]:1", "[fe80::1%eth0]:1", "[::ffff:127.0.0.1]:1",
		"unix:/none", "unix:none", "unix:///none", "dns:///localhost:1", "dns:localhost:1", "dns:1",
	}
	if resolver.Get("unix-abstract") != nil {
		addresses = append(addresses, "unix-abstract:none")
	}
	for _, address := range addresses {
		_, err := sparsefw.Dial(ctx, address, sparsefw.WithConnectTimeout(time.Millisecond))
		if sparsefw.ReasonOf(err) != "UNREACHABLE" {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestServersAreReachedByNamesOfEveryKind(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	listener, err := net.Listen("unix", path)
	must(t, err)
	server := grpc.NewServer()
	v1.RegisterPruneServiceServer(server, &fakeServer{})
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	_, port, err := net.SplitHostPort(startFake(t, &fakeServer{}))
	must(t, err)
	for _, address := range []string{
		"unix:" + path, "unix://" + path, "localhost:" + port, "dns:127.0.0.1:" + port, "dns:///127.0.0.1:" + port,
	} {
		client := dial(t, address)
		must(t, client.CheckJobOptions(ctx, &v1.CheckJobOptionsRequest{}))
	}
}

func TestWhatCannotBeReachedSaysWhy(t *testing.T) {
	cert, key := certificate(t, t.TempDir())
	other, _ := certificate(t, t.TempDir())
	secure := startServer(t, "--tls-cert", cert, "--tls-key", key).address
	plain := startFake(t, &fakeServer{})
	hole, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and never answers
	must(t, err)
	t.Cleanup(func() { hole.Close() })
	for _, test := range []struct {
		address string
		opts    []sparsefw.Option
		why     string
	}{
		{"127.0.0.1:1", nil, "connection refused"},
		{"127.0.0.1:1,127.0.0.1:2", nil, "connection refused"},
		{secure, []sparsefw.Option{sparsefw.WithTLSFiles(other, "", "")}, "certificate signed by unknown authority"},
		{plain, []sparsefw.Option{sparsefw.WithTLSFiles(cert, "", "")}, "first record does not look like a TLS handshake"},
		{secure, nil, ": "}, // words of the system
		{hole.Addr().String(), nil, ": "},
	} {
		start := time.Now()
		_, err := sparsefw.Dial(ctx, test.address, append(test.opts, sparsefw.WithConnectTimeout(300*time.Millisecond))...)
		if !errors.Is(err, sparsefw.ErrUnavailable) || sparsefw.ReasonOf(err) != "UNREACHABLE" {
			t.Errorf("%s: %v", test.address, err)
			continue
		}
		_, text, _ := strings.Cut(err.Error(), test.address+" within 300ms")
		if !strings.Contains(text, test.why) || strings.Contains(text, "desc = ") {
			t.Errorf("%s: %v, which does not say %q", test.address, err, test.why)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%s: after %s", test.address, took)
		}
	}
}
