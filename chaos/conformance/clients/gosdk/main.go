// Command gosdk sends requests to a fleet with github.com/openai/openai-go, unmodified: to a gateway, and through the
// redirect of a global node. It is a module of its own, so that Spillway does not depend on that package. What a client does
// about an error is the package's behaviour, not the command's.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/openai/openai-go"
	"github.com/openai/openai-go/option"
)

const model = "llama-3.1-8b"

var failed bool

// recordCheck prints the result of one check. A failure sets failed.
func recordCheck(what string, err error) {
	if err != nil {
		failed = true
		fmt.Printf("FAIL  %s: %v\n", what, err)
		return
	}
	fmt.Printf("ok    %s\n", what)
}

// newHTTPClient resolves the fleet's names by the fleet's DNS, as a client's resolver would.
func newHTTPClient() *http.Client {
	own := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, os.Getenv("FLEET_DNS"))
	}}
	d := &net.Dialer{Timeout: 5 * time.Second}
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(addr)
		if err == nil && strings.HasSuffix(host, ".spillway.test") {
			ips, err := own.LookupIP(ctx, "ip4", host)
			if err != nil {
				return nil, err
			}
			addr = net.JoinHostPort(ips[0].String(), port)
		}
		return d.DialContext(ctx, network, addr)
	}}}
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for _, way := range []string{"GATEWAY_URL", "GLOBAL_URL"} {
		ai := openai.NewClient(option.WithBaseURL(os.Getenv(way)+"/v1/"), option.WithAPIKey(os.Getenv("FLEET_KEY")),
			option.WithMaxRetries(0), option.WithHTTPClient(newHTTPClient()))
		sendAll(ctx, strings.ToLower(strings.TrimSuffix(way, "_URL")), &ai)
	}
	sendFailing(ctx)
	if failed {
		os.Exit(1)
	}
}

func sendAll(ctx context.Context, way string, ai *openai.Client) {
	ask := openai.ChatCompletionNewParams{
		Model: model, MaxTokens: openai.Int(20), Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Where do I run?")},
	}
	r, err := ai.Chat.Completions.New(ctx, ask)
	if err == nil && (len(r.Choices) == 0 || r.Choices[0].Message.Content == "" || r.Usage.CompletionTokens == 0) {
		err = fmt.Errorf("unexpected answer %s", r.RawJSON())
	}
	recordCheck(way+": chat", err)

	stream, text := ai.Chat.Completions.NewStreaming(ctx, ask), ""
	for stream.Next() {
		if c := stream.Current().Choices; len(c) > 0 {
			text += c[0].Delta.Content
		}
	}
	if err = stream.Err(); err == nil && text == "" {
		err = errors.New("no text")
	}
	recordCheck(way+": chat, streamed", err)

	e, err := ai.Embeddings.New(ctx, openai.EmbeddingNewParams{Model: model, Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"a", "b"}}})
	if err == nil && (len(e.Data) != 2 || len(e.Data[1].Embedding) == 0) {
		err = errors.New("unexpected embeddings")
	}
	recordCheck(way+": embeddings", err)

	m, err := ai.Models.List(ctx)
	if err == nil && len(m.Data) == 0 {
		err = errors.New("no models")
	}
	recordCheck(way+": models", err)

	ask.Model = "no-such"
	_, err = ai.Chat.Completions.New(ctx, ask)
	var api *openai.Error
	if !errors.As(err, &api) || api.StatusCode != http.StatusNotFound || api.Code != "model_not_found" {
		recordCheck(way+": an unknown model", fmt.Errorf("got %w", err))
		return
	}
	recordCheck(way+": an unknown model is an *openai.Error of 404", nil)
}

// sendFailing causes errors with a client that may retry once: the package must act as x-should-retry states.
func sendFailing(ctx context.Context) {
	for _, x := range []struct {
		what, key, model, header string
		status, calls            int
	}{
		{"a wrong key", "wrong", model, "", http.StatusUnauthorized, 1},
		{"an unknown model", os.Getenv("FLEET_KEY"), "no-such", "", http.StatusNotFound, 1},
		{"a deadline that cannot be met", os.Getenv("FLEET_KEY"), model, "1", http.StatusGatewayTimeout, 1},
		{"no capacity", os.Getenv("FLEET_KEY"), "unserved-model", "", http.StatusServiceUnavailable, 2},
	} {
		calls, shouldRetry, begun := 0, "", time.Now()
		count := func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
			resp, err := next(r)
			if err == nil {
				calls, shouldRetry = calls+1, resp.Header.Get("X-Should-Retry")
			}
			return resp, err
		}
		ai := openai.NewClient(option.WithBaseURL(os.Getenv("GATEWAY_URL")+"/v1/"), option.WithAPIKey(x.key), option.WithMaxRetries(1), option.WithMiddleware(count))
		ask := openai.ChatCompletionNewParams{Model: x.model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(strings.Repeat("word ", 4000))}}
		var opts []option.RequestOption
		if x.header != "" {
			opts = append(opts, option.WithHeader("X-Spillway-Deadline-Ms", x.header))
		}
		_, err := ai.Chat.Completions.New(ctx, ask, opts...)
		var api *openai.Error
		if !errors.As(err, &api) || api.StatusCode != x.status || calls != x.calls || shouldRetry != fmt.Sprint(x.calls > 1) {
			err = fmt.Errorf("%d calls, x-should-retry %q, %w", calls, shouldRetry, err)
		} else {
			err = nil
		}
		recordCheck(fmt.Sprintf("%s: %d, sent %d times (%v)", x.what, x.status, x.calls, time.Since(begun).Round(time.Millisecond)), err)
	}
}
