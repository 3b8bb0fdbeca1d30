package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// sendFencedPrompt asks from a tenant that may use virginia only, while every zone of virginia is drained.
func sendFencedPrompt(ctx context.Context, t *targetFleet) (string, error) {
	virginia := t.fleet.NodesByRole("regional")[0]
	zones := []string{virginia.Region + "/a", virginia.Region + "/b"}
	for _, z := range zones {
		if out, err := t.runAdmin(ctx, "drain", "zone", z, "--reason", "attack", "--force"); err != nil {
			return "", fmt.Errorf("drain: %w: %s", err, out)
		}
	}
	defer func() {
		for _, z := range zones {
			_, _ = t.runAdmin(context.WithoutCancel(ctx), "undrain", "zone", z)
		}
	}()
	time.Sleep(2 * time.Second) // for the directive to be in force in both zones
	status := 0
	for range 5 {
		got, err := t.postJSON(ctx, t.gateway+"/v1/chat/completions", t.keys["fenced"], chatBody(strings.Repeat("word ", 2000), 8))
		if err != nil {
			return "", err
		}
		status = got.status
	}
	if n := t.bytesOutside(virginia.Region); n > 0 {
		return "", fmt.Errorf("%d bytes of the prompts reached another region's workers", n)
	}
	got, err := t.postJSON(ctx, t.gateway+"/v1/chat/completions", t.keys["mallory"], chatBody(strings.Repeat("word ", 2000), 8))
	if err != nil {
		return "", err
	}
	if t.bytesOutside(virginia.Region) == 0 {
		return "", fmt.Errorf("the attack was not made: a prompt that may leave the region stays there, with %d", got.status)
	}
	return fmt.Sprintf("5 prompts of 10 KB with the region drained: %d, none left the region; one of a tenant that may leave did", status), nil
}

// bytesOutside counts the bytes of request bodies at the workers of other regions.
func (t *targetFleet) bytesOutside(region string) (n int64) {
	for _, v := range t.workers {
		if !strings.HasPrefix(v.name, region+"/") {
			v.withLock(func() { n += v.bytes })
		}
	}
	return n
}

func askForeignModels(ctx context.Context, t *targetFleet) (string, error) {
	key := t.keys["narrow"]
	tries := []struct{ path, body, header string }{
		{"/v1/chat/completions", chatBody("x", 8), ""},
		{"/v1/chat/completions", chatBody("x", 8), "qwen2.5-7b"},
		{"/api/chat", `{"model":"llama-3.1-8b","messages":[{"role":"user","content":"x"}]}`, "qwen2.5-7b"},
		{"/v1/rerank", `{"model":"llama-3.1-8b","query":"q","documents":["d"]}`, "qwen2.5-7b"},
		{"/v1/score", `{"model":"llama-3.1-8b","text_1":"q","text_2":"d"}`, ""},
		{"/tokenize", `{"model":"llama-3.1-8b","prompt":"x"}`, "qwen2.5-7b"},
	}
	for _, try := range tries {
		header := []string{}
		if try.header != "" {
			header = []string{"X-Model", try.header}
		}
		got, err := t.postJSON(ctx, t.gateway+try.path, key, try.body, header...)
		if err != nil {
			return "", err
		}
		if got.status < 400 || got.status >= 500 {
			return "", fmt.Errorf("%s with x-model %q is answered with %d: %.200s", try.path, try.header, got.status, got.body)
		}
	}
	if n := t.countRequests(); n > 0 {
		return "", fmt.Errorf("%d requests reached a worker", n)
	}
	return fmt.Sprintf("%d requests for a model outside the list: 4xx, none reached a worker", len(tries)), nil
}

func sendDuplicateMembers(ctx context.Context, t *targetFleet) (string, error) {
	bodies := []string{
		`{"model":"qwen2.5-7b","MODEL":"llama-3.1-8b","messages":[]}`,
		`{"model":"qwen2.5-7b","model":"llama-3.1-8b","messages":[]}`,
		`{"model":"qwen2.5-7b","mode\u006c":"llama-3.1-8b","messages":[]}`,
		`{"model":"qwen2.5-7b","messages":[],"max_tokens":1,"max_tokens":9000}`,
		`{"model":"qwen2.5-7b","messages":[],"stream":false,"\u017ftream":true}`,
		`{"model":"qwen2.5-7b","messages":[],"n":1,"n":100}`,
	}
	for _, b := range bodies {
		got, err := t.postJSON(ctx, t.gateway+"/v1/chat/completions", t.keys["narrow"], b)
		if err != nil {
			return "", err
		}
		if got.status != http.StatusBadRequest {
			return "", fmt.Errorf("%s is answered with %d: %.200s", b, got.status, got.body)
		}
	}
	if n := t.countRequests(); n > 0 {
		return "", fmt.Errorf("%d requests reached a worker", n)
	}
	return fmt.Sprintf("%d bodies: 400, none reached a worker", len(bodies)), nil
}

// exceedOutputLimit asks for more than the 50 tokens that the model qwen2.5-7b may make, by every spelling.
func exceedOutputLimit(ctx context.Context, t *targetFleet) (string, error) {
	most := 0
	for _, extra := range []string{
		`"max_tokens":7000`, `"max_completion_tokens":7000`, `"max_tokens":1,"max_completion_tokens":7000`, `"max_output_tokens":1`, `"max_new_tokens":1`,
	} {
		body := `{"model":"qwen2.5-7b","messages":[{"role":"user","content":"write a long text"}],` + extra + `}`
		got, err := t.postJSON(ctx, t.gateway+"/v1/chat/completions", t.keys["mallory"], body)
		if err != nil {
			return "", err
		}
		var u struct {
			Usage struct {
				Completion int `json:"completion_tokens"`
			} `json:"usage"`
		}
		if got.status == http.StatusOK {
			if err := json.Unmarshal([]byte(got.body), &u); err != nil {
				return "", err
			}
			most = max(most, u.Usage.Completion)
		}
		if most > 50 {
			return "", fmt.Errorf("%s: %d tokens, the limit is 50", extra, most)
		}
	}
	return fmt.Sprintf("5 spellings: at most %d tokens of 50", most), nil
}

// leaveLongPrompts asks for long prompts and leaves at once, as a tenant with 20,000 tokens a minute.
func leaveLongPrompts(ctx context.Context, t *targetFleet) (string, error) {
	const calls = 60
	limited := 0
	body := chatBody(strings.Repeat("word ", 6000), 8)
	for i := range calls {
		short, cancel := context.WithTimeout(ctx, 60*time.Millisecond)
		got, err := t.postJSON(short, t.gateway+"/v1/chat/completions", t.keys["metered"], strings.Replace(body, "word", fmt.Sprint("word", i), 1))
		cancel()
		if err == nil && got.status == http.StatusTooManyRequests {
			limited++
		}
	}
	if n := t.countRequests(); n > 10 {
		return "", fmt.Errorf("%d of %d prompts of about 7,000 tokens were begun in a minute that allows 20,000; %d were refused", n, calls, limited)
	}
	return fmt.Sprintf("%d of %d prompts of about 7,000 tokens were begun, %d refused with 429 (20,000 a minute)", t.countRequests(), calls, limited), nil
}
