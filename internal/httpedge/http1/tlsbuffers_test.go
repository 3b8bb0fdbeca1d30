package http1

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

// tlsBufferedBytes returns the size of the read buffers of a TLS connection.
func tlsBufferedBytes(c *tls.Conn) (n int) {
	for _, at := range tlsBufferOffsets {
		n += (*bytes.Buffer)(unsafe.Add(unsafe.Pointer(c), at)).Cap()
	}
	return n
}

// TestTLSBufferFieldsAreFound fails with a Go release that moves the read buffers. Streams then take 4 KB more.
func TestTLSBufferFieldsAreFound(t *testing.T) {
	if len(tlsBufferOffsets) != 2 || len(tlsReaderOffsets) != 1 {
		t.Errorf("tls.Conn has %d and %d of the fields, want 2 and 1", len(tlsBufferOffsets), len(tlsReaderOffsets))
	}
}

// TestShrinkingTLSBuffersLosesNoData shrinks the buffers at every point of an exchange, with pieces that are
// read in parts.
func TestShrinkingTLSBuffersLosesNoData(t *testing.T) {
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
	if tlsBufferedBytes(client) == 0 {
		t.Fatal("nothing is held after a handshake: this test tests nothing")
	}
	shrinkTLSBuffers(client, 0)
	if n := tlsBufferedBytes(client); n != 0 {
		t.Errorf("%d bytes are held after they were given back", n)
	}
	var got bytes.Buffer
	for i := 0; ; i++ {
		p := make([]byte, 1+i*37%3000)
		n, err := client.Read(p)
		got.Write(p[:n])
		shrinkTLSBuffers(client, i%2*maxIdleTLSBuffer)
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

func TestTLSConfigIsSharedPerHost(t *testing.T) {
	base := &tls.Config{MinVersion: tls.VersionTLS13}
	n := NewHostTLSConfigs(base)
	one := n.ConfigFor("one.test")
	if one.ServerName != "one.test" || one.MinVersion != tls.VersionTLS13 || n.ConfigFor("one.test") != one || n.ConfigFor("other.test") == one || base.ServerName != "" {
		t.Error("a host has not its own configuration, or not the same one twice")
	}
	for i := range 2 * maxHostConfigs {
		if host := fmt.Sprint(i); n.ConfigFor(host).ServerName != host {
			t.Fatalf("%s has the configuration of another host", host)
		}
	}
	if len(n.byHost) > maxHostConfigs {
		t.Errorf("%d configurations are kept, want at most %d", len(n.byHost), maxHostConfigs)
	}
	if own := NewHostTLSConfigs(one); own.ConfigFor("other.test") != one {
		t.Error("a name that was set is replaced")
	}
	if NewHostTLSConfigs(nil).ConfigFor("x.test").MinVersion != tls.VersionTLS12 {
		t.Error("without a configuration there is not the usual one")
	}
}
