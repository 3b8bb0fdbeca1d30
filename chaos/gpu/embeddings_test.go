package gpu

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"strings"
	"testing"
)

func TestEmbeddingsAnswersAndErrors(t *testing.T) {
	s, c := startServer(t, Config{Seed: 7, Speed: 50})
	var got struct {
		Data []struct {
			Index     int
			Embedding []float64
		}
		Usage struct {
			Prompt int `json:"prompt_tokens"`
			Total  int `json:"total_tokens"`
		}
	}
	status, text := c.postBody("/v1/embeddings", `{"model":"Llama-3.1-8B","input":["some text","another","some text"],"dimensions":64}`)
	if err := json.Unmarshal([]byte(text), &got); status != 200 || err != nil || len(got.Data) != 3 || got.Usage.Prompt != 3+2+3 || got.Usage.Total != 8 {
		t.Fatalf("%d %s", status, text)
	}
	length := 0.0
	for i, x := range got.Data[0].Embedding {
		length += x * x
		if x != got.Data[2].Embedding[i] {
			t.Fatal("one text, two vectors")
		}
	}
	if length < 0.6 || length > 1.4 || got.Data[1].Index != 1 || got.Data[1].Embedding[0] == got.Data[0].Embedding[0] || len(got.Data[0].Embedding) != 64 {
		t.Errorf("squared length %v of %v", length, got.Data)
	}
	_, text = c.postBody("/v1/embeddings", `{"input":"some text","dimensions":64,"encoding_format":"base64"}`)
	var coded struct{ Data []struct{ Embedding []byte } }
	if err := json.Unmarshal([]byte(text), &coded); err != nil || len(coded.Data[0].Embedding) != 4*64 ||
		float64(math.Float32frombits(binary.LittleEndian.Uint32(coded.Data[0].Embedding))) != float64(float32(got.Data[0].Embedding[0])) {
		t.Errorf("%s (%v) is not the vector %v", text, err, got.Data[0].Embedding)
	}
	if g := s.Gauges(); g.Running+g.Waiting != 0 {
		t.Errorf("something is left in the engine: %+v", g)
	}
	for body, want := range map[string]string{
		`nonsense`: "not a request", `{"input":[]}`: "1 to 2048", `{"input":""}`: "empty", `{"input":["a",""]}`: "input 1", `{"input":{"a":1}}`: "input 0",
		`{"input":"a","dimensions":0}`: "dimensions", `{"input":"a","encoding_format":"int8"}`: "encoding_format", `{"input":"a","truncate_prompt_tokens":4}`: "truncate",
		`{"model":"other","input":"a"}`: "does not exist", `{"input":"` + strings.Repeat("long ", 120_000) + `"}`: "longer",
	} {
		if status, text := c.postBody("/v1/embeddings", body); status/100 != 4 || !strings.Contains(text, want) {
			t.Errorf("%.60s: %d %.200s, want %q", body, status, text, want)
		}
	}
	for body, n := range map[string]int{`{"input":[1,2,3]}`: 3, `{"input":[[1],[2,3]]}`: 3} {
		if _, text := c.postBody("/v1/embeddings", body); json.Unmarshal([]byte(text), &got) != nil || got.Usage.Prompt != n {
			t.Errorf("%s: %.200s", body, text)
		}
	}
}
