// Command gosdk3 sends requests to a fleet with github.com/openai/openai-go/v3, unmodified. That package refuses redirects
// to another origin than its base URL, so a global node must pass its requests on. With the argument "never" it expects the
// error that clients get from a service with redirect_proxy: never. It is a module of its own, so that Spillway does not
// depend on that package.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

const (
	model = "llama-3.1-8b"
	// refusal is the package's error for a redirect to another origin.
	refusal = "request URL origin must match the configured base URL"
)

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

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if len(os.Args) > 1 && os.Args[1] == "never" {
		for _, c := range calls {
			err := c.do(ctx, newClient("GLOBAL_URL"))
			if err != nil && strings.Contains(err.Error(), refusal) {
				err = nil
			} else {
				err = fmt.Errorf("want the error %q, got %v", refusal, err)
			}
			recordCheck("global, redirect_proxy never: "+c.name+" is refused by the package", err)
		}
	} else {
		for _, way := range []string{"GATEWAY_URL", "GLOBAL_URL"} {
			for _, c := range calls {
				recordCheck(strings.ToLower(strings.TrimSuffix(way, "_URL"))+": "+c.name, c.do(ctx, newClient(way)))
			}
		}
	}
	if failed {
		os.Exit(1)
	}
}

func newClient(way string) *openai.Client {
	c := openai.NewClient(option.WithBaseURL(os.Getenv(way)+"/v1/"), option.WithAPIKey(os.Getenv("FLEET_KEY")), option.WithMaxRetries(0))
	return &c
}

// calls are what is sent each way.
var calls = []struct {
	name string
	do   func(ctx context.Context, ai *openai.Client) error
}{
	{"chat", checkChat}, {"chat, streamed", checkStream}, {"models", checkModels}, {"an unknown model is an *openai.Error of 404", checkUnknownModel},
}

func newPrompt(model string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model: model, MaxTokens: openai.Int(20), Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Where do I run?")},
	}
}

func checkChat(ctx context.Context, ai *openai.Client) error {
	r, err := ai.Chat.Completions.New(ctx, newPrompt(model))
	if err == nil && (len(r.Choices) == 0 || r.Choices[0].Message.Content == "" || r.Usage.CompletionTokens == 0) {
		err = fmt.Errorf("unexpected answer %s", r.RawJSON())
	}
	return err
}

func checkStream(ctx context.Context, ai *openai.Client) error {
	s, text, finish := ai.Chat.Completions.NewStreaming(ctx, newPrompt(model)), "", ""
	for s.Next() {
		if c := s.Current().Choices; len(c) > 0 {
			text += c[0].Delta.Content
			finish = c[0].FinishReason
		}
	}
	if err := s.Err(); err != nil {
		return err
	}
	if text == "" || finish == "" {
		return fmt.Errorf("the stream has the text %q and the finish reason %q", text, finish)
	}
	return nil
}

func checkModels(ctx context.Context, ai *openai.Client) error {
	m, err := ai.Models.List(ctx)
	if err == nil && len(m.Data) == 0 {
		err = errors.New("no models")
	}
	return err
}

func checkUnknownModel(ctx context.Context, ai *openai.Client) error {
	_, err := ai.Chat.Completions.New(ctx, newPrompt("no-such"))
	var api *openai.Error
	if !errors.As(err, &api) {
		return fmt.Errorf("not an *openai.Error: %w", err)
	}
	if api.StatusCode != http.StatusNotFound || api.Code != "model_not_found" {
		return fmt.Errorf("status %d, code %q", api.StatusCode, api.Code)
	}
	return nil
}
