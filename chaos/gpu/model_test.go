package gpu

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/testkit"
)

// TestTableEqualsSharedModel: the table contains every pair of the shared performance model, with equal figures, and
// no other.
func TestTableEqualsSharedModel(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(testkit.PerfDir(t), "worker-model.json"))
	if err != nil {
		t.Fatal(err)
	}
	var model struct {
		Pairs map[string]struct {
			GPU        string  `json:"gpu"`
			Model      string  `json:"model"`
			TP         int     `json:"tp"`
			WeightsGiB float64 `json:"weights_gib"`
			BaseMS     float64 `json:"t0_ms"`
			TokenUS    float64 `json:"t_tok_us"`
			Attention  float64 `json:"t_attn_us_per_tok_per_1k_ctx"`
			Context    float64 `json:"t_kv_us_per_1k_ctx_tok"`
			SequenceUS float64 `json:"t_req_us"`
			KVBytes    int     `json:"kv_bytes_per_token"`
			Blocks     int     `json:"kv_blocks_16"`
			KVTokens   int     `json:"kv_tokens"`
		}
	}
	if err := json.Unmarshal(raw, &model); err != nil {
		t.Fatal(err)
	}
	table := map[string]WorkerProfile{}
	for _, p := range CalibratedProfiles() {
		table[fmt.Sprintf("%s/%s/tp%d", p.GPU, p.Model, p.TP)] = p
	}
	if len(table) != len(model.Pairs) {
		t.Errorf("%d pairs in the table, %d in the model", len(table), len(model.Pairs))
	}
	for name, m := range model.Pairs {
		want := WorkerProfile{
			GPU: m.GPU, Model: m.Model, TP: m.TP, WeightsGiB: m.WeightsGiB, BaseMS: m.BaseMS, TokenUS: m.TokenUS,
			AttentionUS: m.Attention, ContextUS: m.Context, SequenceUS: m.SequenceUS, KVBytes: m.KVBytes, Blocks: m.Blocks,
		}
		got := table[name]
		if got != want || got.KVTokens() != m.KVTokens {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
		// Step time by the model's formula, written independently.
		const prefill, decodes, before, context = 700, 20, 1500.0, 30_000
		n := float64(prefill+decodes) * m.TokenUS / 1e3
		ms := max(m.BaseMS, n) + 0.15*min(m.BaseMS, n) + prefill*before/1000*m.Attention/1e3 + context/1000.0*m.Context/1e3 + decodes*m.SequenceUS/1e3
		step := got.StepTime(StepLoad{PrefillTokens: prefill, PrefillContext: before, Decodes: decodes, DecodeContext: context})
		if !isNear(step.Seconds()*1e3, ms, 1e-6) {
			t.Errorf("%s: a step of %v, by the formula %.4f ms", name, step, ms)
		}
	}
}

// TestFirstTokenTimeOfEveryProfile: on an idle worker a prompt's first token comes after ingestion and its chunks,
// and later ones after one decode step each.
func TestFirstTokenTimeOfEveryProfile(t *testing.T) {
	for _, p := range CalibratedProfiles() {
		name := fmt.Sprintf("%s/%s/tp%d", p.GPU, p.Model, p.TP)
		e := newEngine(t, EngineConfig{Profile: p})
		const prompt, output = 5000, 33
		s := submitRequest(t, e, epoch, EngineRequest{PromptTokens: prompt, OutputTokens: output})
		runUntilIdle(t, e, epoch)
		want := IngestTime
		for at := 0; at < prompt; {
			take := min(e.Limits().MaxBatchedTokens, prompt-at)
			want += p.StepTime(StepLoad{PrefillTokens: take, PrefillContext: float64(at) + float64(take)/2})
			at += take
		}
		var decode time.Duration
		for i := range output - 1 {
			decode += p.StepTime(StepLoad{Decodes: 1, DecodeContext: prompt + 1 + i})
		}
		_, _, first, ended := s.EventTimes()
		if got := first.Sub(epoch); got != want {
			t.Errorf("%s: the first token after %v, want %v", name, got, want)
		}
		if got := ended.Sub(first); got != decode {
			t.Errorf("%s: %d tokens in %v, want %v", name, output-1, got, decode)
		}
	}
}

// TestColdStartMatchesMeasurements: the range and spread match the measured example.
func TestColdStartMatchesMeasurements(t *testing.T) {
	p := lookupProfile(t, "L40S", "Llama-3.1-8B", 1)
	cold, warm := p.ColdStart(0.25, false, nil), p.ColdStart(0.9, true, nil)
	// Measured: 294 s at first, of which 61 s are download, and 82 s with everything cached.
	if !isNear(cold.Seconds(), 294-61, 0.15) || !isNear(warm.Seconds(), 82, 0.25) {
		t.Errorf("%v cold and %v warm, measured 233 s without the download and 82 s", cold, warm)
	}
	rng := rand.New(rand.NewPCG(3, 0))
	var all []float64
	for range 2000 {
		all = append(all, p.ColdStart(0.9, true, rng).Seconds()/warm.Seconds())
	}
	over := 0
	for _, x := range all {
		if x > 1.47 { // e^(1.2816 * 0.3)
			over++
		}
	}
	if over < 150 || over > 250 {
		t.Errorf("%d of 2,000 starts are slower than the 90th percentile", over)
	}
}
