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

// What a request asks of the worker stands in its body, since proxies write paths and headers anew: "bench":"n=3 gap=20000"
// is for three events 20 ms apart and the end; n=0 never ends, and gap=0 is one event and then silence.
const order = `"bench":"`

// model is what the worker serves.
const model = "bench"

// completion is the answer to a request that wants no stream, of about 500 bytes.
var completion = answer("application/json", `{"id":"cmpl-0123456789","object":"chat.completion","created":1700000000,"model":"`+model+
	`","choices":[{"index":0,"message":{"role":"assistant","content":"`+strings.Repeat("x", 280)+
	`"},"finish_reason":"stop"}],"usage":{"prompt_tokens":250,"completion_tokens":20,"total_tokens":270}}`)

// pages are what makes it look like an engine with room for all.
var pages = map[string][]byte{
	"/health":    answer("text/plain", ""),
	"/v1/models": answer("application/json", `{"object":"list","data":[{"id":"`+model+`","object":"model","created":1763640000,"owned_by":"vllm","max_model_len":131072}]}`),
	"/metrics": answer("text/plain", `vllm:num_requests_running{engine="0",model_name="bench"} 0
vllm:num_requests_waiting{engine="0",model_name="bench"} 0
vllm:kv_cache_usage_perc{engine="0",model_name="bench"} 0.0
vllm:cache_config_info{block_size="16",enable_prefix_caching="True",engine="0",num_gpu_blocks="8000000"} 1.0
`),
}

func answer(kind, body string) []byte {
	return fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nServer: worker\r\nContent-Length: %d\r\n\r\n%s", kind, len(body), body)
}

// work serves until the listener is closed.
func work(l net.Listener) error {
	p := newPacer()
	go p.run()
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			br := bufio.NewReaderSize(c, 4096)
			for serve(c, br, p) == nil {
			}
		}()
	}
}

// serve answers one request.
func serve(c net.Conn, br *bufio.Reader, p *pacer) error {
	path, body, err := readRequest(br)
	if err != nil {
		return err
	}
	if page, ok := pages[path]; ok {
		_, err := c.Write(page)
		return err
	}
	at := bytes.Index(body, []byte(order))
	if at < 0 {
		_, err := c.Write(completion)
		return err
	}
	var n, gap int64
	if _, err := fmt.Sscanf(string(body[at+len(order):]), "n=%d gap=%d", &n, &gap); err != nil {
		return err
	}
	return stream(c, p, n, gap*1000)
}

// readRequest reads what proxies write, which is well formed.
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
	case length == chunked:
		body, err = readChunks(br)
	case length > 0:
		body = make([]byte, length)
		_, err = io.ReadFull(br, body)
	}
	return path, body, err
}

const chunked = -1

// readHead reads header lines to their end, and returns the body's length: chunked when it comes in pieces.
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
			length = chunked
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
