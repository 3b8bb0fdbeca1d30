package identity_test

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-lb/spillway/internal/identity"
)

// TestCertFilesAreReloaded replaces files under a running node, good and bad, on a clock of its own.
func TestCertFilesAreReloaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newTestCA(t, testTrustDomain)
		dir := t.TempDir()
		files, err := ca.IssueCert(globalID("g1"), dir, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		srv, err := identity.LoadCerts(files, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		cli := newNodeCerts(t, ca, globalID("g2"))
		handshake := func() {
			t.Helper()
			if _, err, cerr := runHandshake(t, srv.ServerTLS("x/1", nil), cli.ClientTLS("x/1", nil)); err != nil || cerr != nil {
				t.Fatal(err, cerr)
			}
		}
		first := srv.Expires()

		good, _ := os.ReadFile(files.Cert)
		writeTestFile(t, files.Cert, []byte("rubbish"))
		for range 3 {
			time.Sleep(2 * time.Second)
			handshake()
		}
		if n := strings.Count(log.String(), "refused"); n != 1 || !srv.Expires().Equal(first) {
			t.Fatalf("a bad file is logged %d times and expiry is %v, want once and %v", n, srv.Expires(), first)
		}
		writeTestFile(t, files.Cert, good)

		time.Sleep(10 * time.Minute)
		if _, err := ca.IssueCert(globalID("g1"), dir, time.Hour); err != nil {
			t.Fatal(err)
		}
		handshake()
		if !srv.Expires().After(first) {
			t.Fatal("a renewed certificate is not taken up at the next handshake")
		}

		other, err := ca.IssueCert(globalID("g9"), t.TempDir(), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		for from, to := range map[string]string{other.Cert: files.Cert, other.Key: files.Key} {
			text, _ := os.ReadFile(from)
			writeTestFile(t, to, text)
		}
		if err := srv.Reload(); err == nil || !strings.Contains(err.Error(), "restart") || srv.ID() != globalID("g1") {
			t.Fatalf("reload to another identity: %v, now %v", err, srv.ID())
		}
		if strings.Contains(log.String(), "PRIVATE") {
			t.Fatal("key material in the log")
		}
	})
}

func writeTestFile(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestLoadCertsRefusesInvalidFiles(t *testing.T) {
	ca, foreign := newTestCA(t, testTrustDomain), newTestCA(t, testTrustDomain)
	good, err := ca.IssueCert(globalID("g1"), t.TempDir(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	other, err := foreign.IssueCert(globalID("g1"), t.TempDir(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	old, err := ca.IssueCert(globalID("g1"), t.TempDir(), -time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]identity.CertFiles{
		"no files":          {},
		"missing":           {Cert: good.Cert + "x", Key: good.Key, CA: good.CA},
		"key of another":    {Cert: good.Cert, Key: other.Key, CA: good.CA},
		"foreign authority": {Cert: good.Cert, Key: good.Key, CA: other.CA},
		"expired":           old,
		"authority as node": {Cert: good.CA, Key: strings.TrimSuffix(good.CA, "pem") + "key", CA: good.CA},
		"directory":         {Cert: t.TempDir(), Key: good.Key, CA: good.CA},
	} {
		if _, err := identity.LoadCerts(f, nil); err == nil {
			t.Errorf("%s: loaded", name)
		}
	}
}
