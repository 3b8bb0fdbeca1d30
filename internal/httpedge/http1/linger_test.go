package http1

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// A handler ends its response while another goroutine reads the request body, as a transport does that has sent the
// request on. The server then closes the connection, and the client must be able to write on until it has read the
// response.
func TestClientMayWriteItsBodyAfterTheResponse(t *testing.T) {
	reading := make(chan struct{})
	s := NewServer(&http.Server{ErrorLog: discardLog, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex() // net/http's own writer supports it
		w.Header().Set("Connection", "close")
		w.Header().Set("Content-Length", "0")
		go func() {
			one := make([]byte, 1)
			_, _ = r.Body.Read(one)
			close(reading)
			_, _ = io.Copy(io.Discard, r.Body)
		}()
		<-reading // the first byte has arrived, and the goroutine waits for more
		LingerAtClose(r)
	})}, nil)
	s.lingerTime = time.Minute
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(l) }() // it ends with the server
	defer func() { _ = s.Close() }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(c, "POST /any.Service/Fail HTTP/1.1\r\nHost: x\r\nContent-Type: application/grpc\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	_ = resp.Body.Close() // empty
	if _, err := in.ReadByte(); err != io.EOF {
		t.Fatalf("after the response: %v, want the end of the connection", err)
	}
	for i := range 100 { // the first write to a closed connection succeeds and is answered by a reset
		if _, err := fmt.Fprintf(c, "5\r\nhello\r\n"); err != nil {
			t.Fatalf("write %d after the response: %v", i, err)
		}
	}
}
