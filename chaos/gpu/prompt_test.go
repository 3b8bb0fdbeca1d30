package gpu

import (
	"fmt"
	"testing"
)

// An answer that is cut anywhere and requested again with its beginning continues as the uncut one.
func TestContinuationGivesRestOfAnswer(t *testing.T) {
	limits := EngineLimits{MaxModelLen: 4096}
	ask := func(k endpointKind, body string) (*generationJob, string) {
		t.Helper()
		j, err := decodeJob(k, []byte(body), "m", limits, 7)
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		return j, string(appendText(nil, j.answerKey, j.continuedTokens, j.outputTokens))
	}
	for i := range 50 {
		prompt := fmt.Sprintf("question %d, please, and one", i)
		chatting := func(tail string, max int) string {
			return fmt.Sprintf(`{"messages":[{"role":"user","content":%q}%s,"max_tokens":%d}`, prompt, tail, max)
		}
		undisturbed, want := ask(kindChat, chatting("]", 200))
		_, wantCompletion := ask(kindCompletion, fmt.Sprintf(`{"prompt":%q,"max_tokens":60,"ignore_eos":true}`, prompt))
		for n := 1; n < undisturbed.outputTokens; n += 1 + i%7 {
			j, rest := ask(kindChat, chatting(fmt.Sprintf(`,{"role":"assistant","content":%q}],"continue_final_message":true,"add_generation_prompt":false`, want[:n*bytesPerToken]), 200-n))
			if want[:n*bytesPerToken]+rest != want || j.finishReason != undisturbed.finishReason || j.prompt.tokens != undisturbed.prompt.tokens+n {
				t.Fatalf("cut after %d tokens it went on with %q (%s, %d prompt tokens), want %q", n, rest, j.finishReason, j.prompt.tokens, want[n*bytesPerToken:])
			}
		}
		for n := 1; n < 60; n += 1 + i%5 {
			if _, rest := ask(kindCompletion, fmt.Sprintf(`{"prompt":%q,"max_tokens":%d,"ignore_eos":true}`, prompt+wantCompletion[:n*bytesPerToken], 60-n)); wantCompletion[:n*bytesPerToken]+rest != wantCompletion {
				t.Fatalf("a completion cut after %d tokens went on with %q, want %q", n, rest, wantCompletion[n*bytesPerToken:])
			}
		}
	}
	if _, err := decodeJob(kindChat, []byte(`{"messages":[{"role":"user","content":"x"}],"continue_final_message":true,"add_generation_prompt":false}`), "m", limits, 7); err == nil {
		t.Error("a user's message was continued")
	}
	if _, err := decodeJob(kindChat, []byte(`{"messages":[{"role":"assistant","content":"x"}],"continue_final_message":true}`), "m", limits, 7); err == nil {
		t.Error("a message was continued while a new one was begun")
	}
}
