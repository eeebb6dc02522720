package sparsefw_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	sparsefw "github.com/sparsefw/sparsefw/client/go"
)

// certificate writes a self-signed certificate of this machine and its key.
func certificate(t *testing.T, folder string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	must(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	must(t, err)
	cert, key = filepath.Join(folder, "cert.pem"), filepath.Join(folder, "key.pem")
	must(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644))
	must(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	return cert, key
}

func TestTLSAndTokens(t *testing.T) {
	folder := t.TempDir()
	cert, key := certificate(t, folder)
	sum := sha256.Sum256([]byte("open-sesame"))
	tokens := filepath.Join(folder, "tokens")
	must(t, os.WriteFile(tokens, []byte("default:"+hex.EncodeToString(sum[:])+"\n"), 0o600))
	server := startServer(t, "--tls-cert", cert, "--tls-key", key, "--tokens", tokens)
	secure := sparsefw.WithTLSFiles(cert, "", "")

	client := server.dial(secure, sparsefw.WithToken("open-sesame"))
	_, err := client.ServerInfo(ctx)
	must(t, err)
	// Two addresses, too: each has the name of its own.
	client = dial(t, "127.0.0.1:1,"+server.address, secure, sparsefw.WithToken("open-sesame"))
	_, err = client.ServerInfo(ctx)
	must(t, err)

	for _, opts := range [][]sparsefw.Option{{secure}, {secure, sparsefw.WithToken("sesame")}} {
		_, err := server.dial(opts...).ServerInfo(ctx)
		if !errors.Is(err, sparsefw.ErrUnauthenticated) {
			t.Errorf("%v", err)
		}
	}
	other, _ := certificate(t, t.TempDir())
	_, err = sparsefw.Dial(ctx, server.address, sparsefw.WithTLSFiles(other, "", ""),
		sparsefw.WithConnectTimeout(time.Second))
	if !errors.Is(err, sparsefw.ErrUnavailable) {
		t.Errorf("a server with another certificate: %v", err)
	}
}
