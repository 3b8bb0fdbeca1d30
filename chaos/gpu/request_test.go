package gpu

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

var roomyLimits = EngineLimits{MaxModelLen: 100_000}

func mustDecodeJob(t testing.TB, k endpointKind, raw string) *generationJob {
	t.Helper()
	j, err := decodeJob(k, []byte(raw), "m", roomyLimits, 1)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func TestOutputLengthFollowsLimits(t *testing.T) {
	const head = `{"prompt":"some prompt",`
	natural := mustDecodeJob(t, kindCompletion, `{"prompt":"some prompt"}`).outputTokens
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
		j, err := decodeJob(kindCompletion, []byte(c.raw), "m", roomyLimits, 1)
		switch {
		case c.output == 0 && err == nil:
			t.Errorf("%s: accepted", c.raw)
		case c.output > 0 && (err != nil || j.outputTokens != c.output || j.finishReason != c.finish):
			t.Errorf("%s: %+v, %v; want %d %s", c.raw, j, err, c.output, c.finish)
		}
	}
}

func TestNaturalLengthsAreLognormal(t *testing.T) {
	lengths := make([]int, 20_000)
	for i := range lengths {
		lengths[i] = naturalLength(splitMix64(uint64(i)))
	}
	slices.Sort(lengths)
	// Azure 2023 conversations: median 129 tokens, 424 at 90 %.
	if p50, p90 := lengths[10_000], lengths[18_000]; math.Abs(float64(p50)-129) > 6 || math.Abs(float64(p90)-424) > 30 {
		t.Errorf("p50 %d, p90 %d", p50, p90)
	}
}

func TestPromptTokenAndBlockCounts(t *testing.T) {
	for _, c := range []struct {
		k      endpointKind
		raw    string
		tokens int
		blocks int
	}{
		{kindCompletion, `{"prompt":"x"}`, 1, 0},
		{kindCompletion, `{"prompt":"12345"}`, 2, 0},
		{kindCompletion, `{"prompt":["12345678"]}`, 2, 0},
		{kindCompletion, `{"prompt":[1,2,3,4,5]}`, 5, 0},
		{kindCompletion, `{"prompt":"` + strings.Repeat("a", 64) + `"}`, 16, 1},
		{kindCompletion, `{"prompt":"` + strings.Repeat("a", 191) + `"}`, 48, 2},
		{kindChat, `{"messages":[{"role":"system","content":"1234"},{"role":"user","content":[{"type":"text","text":"56"},{"type":"text","text":"789"}]}]}`, 3, 0},
		{kindChat, `{"messages":[{"role":"assistant","content":null},{"role":"user","content":"abcd"}]}`, 1, 0},
	} {
		j := mustDecodeJob(t, c.k, c.raw)
		if j.prompt.tokens != c.tokens || len(j.prompt.blockHashes) != c.blocks {
			t.Errorf("%s: %d tokens, %d blocks; want %d, %d", c.raw, j.prompt.tokens, len(j.prompt.blockHashes), c.tokens, c.blocks)
		}
	}
}

func TestPrefixHashesAreChained(t *testing.T) {
	ask := func(text string) []uint64 {
		return mustDecodeJob(t, kindCompletion, `{"prompt":"`+text+`"}`).prompt.blockHashes
	}
	a, b, c := strings.Repeat("a", 64), strings.Repeat("b", 64), strings.Repeat("c", 64)
	one, two, other := ask(a+b), ask(a+c), ask(c+b)
	if one[0] != two[0] || one[1] == two[1] || one[1] == other[1] {
		t.Error("a block's hash must follow all that stands before it and nothing else")
	}
	user := mustDecodeJob(t, kindChat, `{"messages":[{"role":"user","content":"`+a+`"}]}`).prompt.blockHashes
	system := mustDecodeJob(t, kindChat, `{"messages":[{"role":"system","content":"`+a+`"}]}`).prompt.blockHashes
	if user[0] == system[0] {
		t.Error("the same text in another role is another prompt")
	}
}

func TestAnswersFollowSeedAndPrompt(t *testing.T) {
	text := func(raw string, seed uint64) string {
		j, err := decodeJob(kindCompletion, []byte(raw), "m", roomyLimits, seed)
		if err != nil {
			t.Fatal(err)
		}
		return string(appendText(nil, j.answerKey, 0, 20))
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

func FuzzDecodeJob(f *testing.F) {
	f.Add([]byte(`{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":5}`), true)
	f.Add([]byte(`{"prompt":[1,2,3],"stop":["\n"],"min_tokens":2,"stream":true,"stream_options":{"include_usage":true}}`), false)
	f.Add([]byte(`{"prompt":"","n":1e9}`), false)
	f.Fuzz(func(t *testing.T, raw []byte, talk bool) {
		k := kindCompletion
		if talk {
			k = kindChat
		}
		j, err := decodeJob(k, raw, "m", roomyLimits, 1)
		if err != nil {
			return
		}
		if j.prompt.tokens < 1 || j.outputTokens < 1 || j.prompt.tokens+j.outputTokens > roomyLimits.MaxModelLen {
			t.Fatalf("%d prompt and %d output tokens", j.prompt.tokens, j.outputTokens)
		}
		if len(j.prompt.blockHashes) > j.prompt.tokens/BlockTokens {
			t.Fatalf("%d full blocks in %d tokens", len(j.prompt.blockHashes), j.prompt.tokens)
		}
	})
}
