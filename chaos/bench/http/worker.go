//go:build !windows

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// Instructions for the worker are in the body of a request, because proxies rewrite paths and headers: "bench":"n=3
// gap=20000" requests three events 20 ms apart and the end; n=0 never ends, and gap=0 is one event followed by
// silence.
const orderMark = `"bench":"`

// modelName is the served model.
const modelName = "bench"

// completionAnswer is the answer to an unstreamed request, of about 500 bytes.
var completionAnswer = makeAnswer("application/json", `{"id":"cmpl-0123456789","object":"chat.completion","created":1700000000,"model":"`+modelName+
	`","choices":[{"index":0,"message":{"role":"assistant","content":"`+strings.Repeat("x", 280)+
	`"},"finish_reason":"stop"}],"usage":{"prompt_tokens":250,"completion_tokens":20,"total_tokens":270}}`)

// enginePages make it look like an idle engine.
var enginePages = map[string][]byte{
	"/health":    makeAnswer("text/plain", ""),
	"/v1/models": makeAnswer("application/json", `{"object":"list","data":[{"id":"`+modelName+`","object":"model","created":1763640000,"owned_by":"vllm","max_model_len":131072}]}`),
	"/metrics": makeAnswer("text/plain", `vllm:num_requests_running{engine="0",model_name="bench"} 0
vllm:num_requests_waiting{engine="0",model_name="bench"} 0
vllm:kv_cache_usage_perc{engine="0",model_name="bench"} 0.0
vllm:cache_config_info{block_size="16",enable_prefix_caching="True",engine="0",num_gpu_blocks="8000000"} 1.0
`),
}

func makeAnswer(kind, body string) []byte {
	return fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nServer: worker\r\nContent-Length: %d\r\n\r\n%s", kind, len(body), body)
}

// serveWorker serves until the listener is closed.
func serveWorker(l net.Listener) error {
	p := newEventPacer()
	go p.runForever()
	return acceptRequests(l, p)
}

// acceptRequests serves without streams where there is no pacer.
func acceptRequests(l net.Listener, p *eventPacer) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			br := bufio.NewReaderSize(c, 4096)
			for serveRequest(c, br, p) == nil {
			}
		}()
	}
}

// serveRequest answers one request.
func serveRequest(c net.Conn, br *bufio.Reader, p *eventPacer) error {
	path, body, err := readRequest(br)
	if err != nil {
		return err
	}
	if page, ok := enginePages[path]; ok {
		_, err := c.Write(page)
		return err
	}
	at := bytes.Index(body, []byte(orderMark))
	if at < 0 || p == nil {
		_, err := c.Write(completionAnswer)
		return err
	}
	var n, gap int64
	if _, err := fmt.Sscanf(string(body[at+len(orderMark):]), "n=%d gap=%d", &n, &gap); err != nil {
		return err
	}
	return streamEvents(c, p, n, gap*1000)
}

// readRequest reads requests from proxies, which are well formed.
func readRequest(br *bufio.Reader) (path string, body []byte, err error) {
	line, err := br.ReadSlice('\n')
	if err != nil {
		return "", nil, err
	}
	words := bytes.Fields(line)
	if len(words) != 3 {
		return "", nil, io.ErrUnexpectedEOF
	}
	path, _, _ = strings.Cut(string(words[1]), "?")
	length, err := readHead(br)
	switch {
	case err != nil:
	case length == chunkedLength:
		body, err = readChunks(br)
	case length > 0:
		body = make([]byte, length)
		_, err = io.ReadFull(br, body)
	}
	return path, body, err
}

const chunkedLength = -1

// readHead reads header lines to their end, and returns the body's length, or chunked for chunked encoding.
func readHead(br *bufio.Reader) (length int64, err error) {
	for {
		line, err := br.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		if len(line) <= 2 {
			return length, nil
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch {
		case len(name) == 14 && bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64); err != nil {
				return 0, err
			}
		case len(name) == 17 && bytes.EqualFold(name, []byte("Transfer-Encoding")):
			length = chunkedLength
		}
	}
}

func readChunks(br *bufio.Reader) (all []byte, err error) {
	for {
		line, err := br.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		n, err := strconv.ParseUint(string(bytes.TrimSpace(line)), 16, 31)
		if err != nil {
			return nil, err
		}
		piece := make([]byte, n+2)
		if _, err := io.ReadFull(br, piece); err != nil {
			return nil, err
		}
		if n == 0 {
			return all, nil
		}
		all = append(all, piece[:n]...)
	}
}
