package wire

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"testing"
	"unsafe"
)

// held is what a TLS connection holds of its reading.
func held(c *tls.Conn) (n int) {
	for _, at := range tlsBuffers {
		n += (*bytes.Buffer)(unsafe.Add(unsafe.Pointer(c), at)).Cap()
	}
	return n
}

// TestLeanFindsWhatItGivesBack fails with a release of Go that keeps what it has read elsewhere: streams then take 4 KB more.
func TestLeanFindsWhatItGivesBack(t *testing.T) {
	if len(tlsBuffers) != 2 || len(tlsInput) != 1 {
		t.Errorf("tls.Conn has %d and %d of the fields, want 2 and 1", len(tlsBuffers), len(tlsInput))
	}
}

// TestLeanLosesNothing gives back at every moment of a conversation, with pieces that are read in parts.
func TestLeanLosesNothing(t *testing.T) {
	srv := httptest.NewUnstartedServer(nil) // for its certificate
	srv.StartTLS()
	defer srv.Close()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	server, client := tls.Server(a, srv.TLS), tls.Client(b, &tls.Config{InsecureSkipVerify: true})
	var sent bytes.Buffer
	go func() {
		for i := range 200 {
			piece := bytes.Repeat(fmt.Appendf(nil, "%d,", i), i*i%900)
			sent.Write(piece)
			if _, err := server.Write(piece); err != nil {
				return
			}
		}
		_ = server.Close()
	}()
	if err := client.Handshake(); err != nil {
		t.Fatal(err)
	}
	if held(client) == 0 {
		t.Fatal("nothing is held after a handshake: this test tests nothing")
	}
	lean(client, 0)
	if n := held(client); n != 0 {
		t.Errorf("%d bytes are held after they were given back", n)
	}
	var got bytes.Buffer
	for i := 0; ; i++ {
		p := make([]byte, 1+i*37%3000)
		n, err := client.Read(p)
		got.Write(p[:n])
		lean(client, i%2*leanBytes)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(got.Bytes(), sent.Bytes()) {
		t.Errorf("%d bytes came, %d were sent, or others", got.Len(), sent.Len())
	}
}

func TestConfigurationsAreSharedByHost(t *testing.T) {
	base := &tls.Config{MinVersion: tls.VersionTLS13}
	n := Named(base)
	one := n.Of("one.test")
	if one.ServerName != "one.test" || one.MinVersion != tls.VersionTLS13 || n.Of("one.test") != one || n.Of("other.test") == one || base.ServerName != "" {
		t.Error("a host has not its own configuration, or not the same one twice")
	}
	for i := range 2 * maxNamed {
		if host := fmt.Sprint(i); n.Of(host).ServerName != host {
			t.Fatalf("%s has the configuration of another host", host)
		}
	}
	if len(n.byHost) > maxNamed {
		t.Errorf("%d configurations are kept, want at most %d", len(n.byHost), maxNamed)
	}
	if own := Named(one); own.Of("other.test") != one {
		t.Error("a name that was set is replaced")
	}
	if Named(nil).Of("x.test").MinVersion != tls.VersionTLS12 {
		t.Error("without a configuration there is not the usual one")
	}
}
