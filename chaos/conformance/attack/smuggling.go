package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// sendSmuggledRequests are requests that a gateway and a worker might read differently. None may be answered as two.
func sendSmuggledRequests(ctx context.Context, t *targetFleet) (string, error) {
	auth := "Host: chat\r\nAuthorization: Bearer " + t.keys["mallory"] + "\r\nContent-Type: application/json\r\n"
	second := "POST /sleep HTTP/1.1\r\nHost: worker\r\nContent-Length: 0\r\n\r\n"
	cases := []string{
		"POST /v1/chat/completions HTTP/1.1\r\n" + auth + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + second,
		"POST /v1/chat/completions HTTP/1.1\r\n" + auth + "Content-Length: 5\r\nContent-Length: 60\r\n\r\nhello" + second,
		"POST /v1/chat/completions HTTP/1.1\r\n" + auth + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + second,
		"POST /v1/chat/completions HTTP/1.1\r\n" + auth + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + second,
		"POST /v1/chat/completions HTTP/1.1\r\n" + auth + "Content-Length: +5\r\n\r\nhello" + second,
		"POST /v1/chat/completions HTTP/1.1\r\n" + auth + "Content-Length: 0x5\r\n\r\nhello" + second,
		"POST /v1/chat/completions HTTP/1.1\n" + auth + "Transfer-Encoding: chunked\r\n\r\n5;\nx\r\nhello\r\n0\r\n\r\n" + second,
		"POST /v1/chat/completions HTTP/1.1\r\n" + auth + "X: a\r\n Content-Length: 60\r\nContent-Length: 0\r\n\r\n" + second,
		"POST /v1/chat/completions HTTP/1.1\r\n" + auth + "Transfer-Encoding: chunked\r\n\r\n0\r\nbad trailer\r\n\r\n" + second,
	}
	for i, c := range cases {
		got, err := t.sendRaw(ctx, t.gateway, c, 1500*time.Millisecond)
		if err != nil {
			return "", fmt.Errorf("case %d: %w", i, err)
		}
		if n := strings.Count(got, "HTTP/1.1 2"); n > 0 {
			return "", fmt.Errorf("case %d is answered with %.200q", i, got)
		}
	}
	if n := t.countRequests(); n > 0 {
		return "", fmt.Errorf("%d requests reached a worker", n)
	}
	return fmt.Sprintf("%d ambiguous requests refused, none reached a worker", len(cases)), nil
}
