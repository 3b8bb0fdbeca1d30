package resume

import (
	"fmt"
	"strings"
	"testing"
)

// seamOf follows a plain chat.
func seamOf(t *testing.T) *Seam {
	t.Helper()
	body := []byte(`{"model":"m","messages":[{"role":"user","content":"x"}],"stream":true}`)
	q, why := Examine(body, "/v1/chat/completions", false)
	if why != None {
		t.Fatalf("the request cannot be resumed: %s", why)
	}
	return New(q, body, 4, Bounds{Text: 1 << 20})
}

// TestAClientErrorInAStreamIsItsAnswer: an error event that blames the request passes, ends the stream and is never resumed.
// Any other error event is a failure of the engine and does not pass.
func TestAClientErrorInAStreamIsItsAnswer(t *testing.T) {
	for _, c := range []struct {
		data     string
		declined bool
	}{
		{`{"error":{"object":"error","message":"too long","type":"BadRequestError","param":null,"code":400}}`, true}, // SGLang, vLLM
		{`{"error":{"message":"x","code":"422"}}`, true},
		{`{"error":{"message":"x","type":"invalid_request_error","code":"context_length_exceeded"}}`, true},
		{`{"error":{"message":"x","type":"BadRequestError"}}`, true},
		{`{"error":"inputs tokens + max_new_tokens must be <= 4096","error_type":"validation"}`, true}, // TGI
		{`{"error":{"message":"x","type":"BadRequestError","code":500}}`, false},
		{`{"error":{"message":"BadRequestError","type":"InternalServerError","code":500}}`, false},
		{`{"error":{"message":"x","type":"server_error","code":"upstream_lost"}}`, false},
		{`{"error":{"message":"x"}}`, false},
		{`{"error":"generation failed","error_type":"generation"}`, false},
		{`{"error":{"code":400`, false},
	} {
		for _, joined := range []bool{false, true} {
			s := seamOf(t)
			begin := `data: {"id":"a","choices":[{"index":0,"delta":{"content":"one "},"finish_reason":null}]}` + "\n\n"
			s.Pass([]byte(begin))
			if joined {
				if body, _ := s.Cut(0, 5); body == nil {
					t.Fatal("the stream cannot be resumed")
				}
			}
			ev := "data: " + c.data + "\n\n"
			got := string(s.Pass([]byte(ev)))
			if !strings.HasSuffix(c.data, "}") {
				if s.Declined() != nil || s.Failure() != nil {
					t.Errorf("%s: what is no JSON was read as an error", c.data)
				}
				continue
			}
			passed, declined, failed := got == ev, s.Declined() != nil, s.Failure() != nil
			if passed != c.declined || declined != c.declined || failed == c.declined {
				t.Errorf("%s, joined %v: passed %v, declined %v, failed %v", c.data, joined, passed, declined, failed)
			}
			if c.declined && (s.Short() || s.Why() == None) {
				t.Errorf("%s, joined %v: short %v, could be resumed: %q", c.data, joined, s.Short(), s.Why())
			}
			if rest := string(s.Pass([]byte("data: [DONE]\n\n"))); c.declined != (rest != "") {
				t.Errorf("%s, joined %v: after it %q passes", c.data, joined, rest)
			}
		}
	}
}

// TestAStreamWithLogprobsIsNotResumed: a continuation would have none for the text that was sent along.
func TestAStreamWithLogprobsIsNotResumed(t *testing.T) {
	for _, c := range []struct {
		logprobs string
		want     Reason
	}{{`null`, None}, {`{"content":[{"token":"a","logprob":-0.1}]}`, Delta}, {`{}`, Delta}} {
		for _, delta := range []string{`"delta":{"content":"a"}`, `"text":"a"`} {
			s := seamOf(t)
			s.Pass([]byte(fmt.Sprintf(`data: {"id":"a","choices":[{"index":0,%s,"logprobs":%s,"finish_reason":null}]}`+"\n\n", delta, c.logprobs)))
			if got := s.Why(); got != c.want {
				t.Errorf("%s with logprobs %s: %q, want %q", delta, c.logprobs, got, c.want)
			}
		}
	}
}
