package gpu

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

var roomy = Limits{MaxModelLen: 100_000}

func job1(t testing.TB, k kind, raw string) *job {
	t.Helper()
	j, err := decode(k, []byte(raw), "m", roomy, 1)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func TestOutputLength(t *testing.T) {
	const head = `{"prompt":"some prompt",`
	natural := job1(t, completion, `{"prompt":"some prompt"}`).output
	for _, c := range []struct {
		raw    string
		output int
		finish string
	}{
		{head + `"max_tokens":100000}`, 0, ""}, // more than the context holds
		{head + `"max_tokens":77,"ignore_eos":true}`, 77, "length"},
		{head + fmt.Sprintf(`"max_tokens":%d}`, natural), natural, "length"},
		{head + fmt.Sprintf(`"max_tokens":%d}`, natural+50), natural, "stop"},
		{head + fmt.Sprintf(`"max_completion_tokens":%d}`, natural+50), natural, "stop"},
		{head + fmt.Sprintf(`"max_tokens":%d,"min_tokens":%d}`, natural+50, natural+20), natural + 20, "stop"},
		{head + `"max_tokens":1}`, 1, "length"},
		{head + `"ignore_eos":true}`, 100_000 - 3, "length"},
	} {
		j, err := decode(completion, []byte(c.raw), "m", roomy, 1)
		switch {
		case c.output == 0 && err == nil:
			t.Errorf("%s: accepted", c.raw)
		case c.output > 0 && (err != nil || j.output != c.output || j.finish != c.finish):
			t.Errorf("%s: %+v, %v; want %d %s", c.raw, j, err, c.output, c.finish)
		}
	}
}

func TestNaturalLengthsAreLognormal(t *testing.T) {
	lengths := make([]int, 20_000)
	for i := range lengths {
		lengths[i] = naturalLength(mix(uint64(i)))
	}
	slices.Sort(lengths)
	// Azure 2023 conversations: 129 tokens in the middle, 424 at 90 %.
	if p50, p90 := lengths[10_000], lengths[18_000]; math.Abs(float64(p50)-129) > 6 || math.Abs(float64(p90)-424) > 30 {
		t.Errorf("p50 %d, p90 %d", p50, p90)
	}
}

func TestPromptTokens(t *testing.T) {
	for _, c := range []struct {
		k      kind
		raw    string
		tokens int
		blocks int
	}{
		{completion, `{"prompt":"x"}`, 1, 0},
		{completion, `{"prompt":"12345"}`, 2, 0},
		{completion, `{"prompt":["12345678"]}`, 2, 0},
		{completion, `{"prompt":[1,2,3,4,5]}`, 5, 0},
		{completion, `{"prompt":"` + strings.Repeat("a", 64) + `"}`, 16, 1},
		{completion, `{"prompt":"` + strings.Repeat("a", 191) + `"}`, 48, 2},
		{chat, `{"messages":[{"role":"system","content":"1234"},{"role":"user","content":[{"type":"text","text":"56"},{"type":"text","text":"789"}]}]}`, 3, 0},
		{chat, `{"messages":[{"role":"assistant","content":null},{"role":"user","content":"abcd"}]}`, 1, 0},
	} {
		j := job1(t, c.k, c.raw)
		if j.input.tokens != c.tokens || len(j.input.prefix) != c.blocks {
			t.Errorf("%s: %d tokens, %d blocks; want %d, %d", c.raw, j.input.tokens, len(j.input.prefix), c.tokens, c.blocks)
		}
	}
}

func TestPrefixHashesAreChained(t *testing.T) {
	ask := func(text string) []uint64 { return job1(t, completion, `{"prompt":"`+text+`"}`).input.prefix }
	a, b, c := strings.Repeat("a", 64), strings.Repeat("b", 64), strings.Repeat("c", 64)
	one, two, other := ask(a+b), ask(a+c), ask(c+b)
	if one[0] != two[0] || one[1] == two[1] || one[1] == other[1] {
		t.Error("a block's hash must follow all that stands before it and nothing else")
	}
	user := job1(t, chat, `{"messages":[{"role":"user","content":"`+a+`"}]}`).input.prefix
	system := job1(t, chat, `{"messages":[{"role":"system","content":"`+a+`"}]}`).input.prefix
	if user[0] == system[0] {
		t.Error("the same text in another role is another prompt")
	}
}

func TestAnswersFollowSeedAndPrompt(t *testing.T) {
	text := func(raw string, seed uint64) string {
		j, err := decode(completion, []byte(raw), "m", roomy, seed)
		if err != nil {
			t.Fatal(err)
		}
		return string(appendText(nil, j.key, 0, 20))
	}
	first := text(`{"prompt":"a"}`, 1)
	if first != text(`{"prompt":"a","stream":true}`, 1) {
		t.Error("one prompt, two answers")
	}
	for _, other := range []string{text(`{"prompt":"b"}`, 1), text(`{"prompt":"a"}`, 2), text(`{"prompt":"a","seed":5}`, 1)} {
		if other == first {
			t.Error("another prompt or seed, the same answer")
		}
	}
	if len(first) != 20*bytesPerToken {
		t.Errorf("20 tokens are %d bytes", len(first))
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":5}`), true)
	f.Add([]byte(`{"prompt":[1,2,3],"stop":["\n"],"min_tokens":2,"stream":true,"stream_options":{"include_usage":true}}`), false)
	f.Add([]byte(`{"prompt":"","n":1e9}`), false)
	f.Fuzz(func(t *testing.T, raw []byte, talk bool) {
		k := completion
		if talk {
			k = chat
		}
		j, err := decode(k, raw, "m", roomy, 1)
		if err != nil {
			return
		}
		if j.input.tokens < 1 || j.output < 1 || j.input.tokens+j.output > roomy.MaxModelLen {
			t.Fatalf("%d prompt and %d output tokens", j.input.tokens, j.output)
		}
		if len(j.input.prefix) > j.input.tokens/BlockTokens {
			t.Fatalf("%d full blocks in %d tokens", len(j.input.prefix), j.input.tokens)
		}
	})
}
