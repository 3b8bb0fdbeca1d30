package engine

import (
	"math"
	"path"
	"testing"
	"time"
)

func addSeedPages(f *testing.F, pattern string) {
	found := false
	for _, page := range readPages(f) {
		if ok, err := path.Match(pattern, page.Name); err != nil {
			f.Fatal(err)
		} else if ok {
			f.Add(page.Data)
			found = true
		}
	}
	if !found {
		f.Fatalf("no page matches %s", pattern)
	}
}

// checkReading checks that a reading is in range.
func checkReading(t *testing.T, r Reading) {
	t.Helper()
	for _, v := range []float64{
		float64(r.Running), float64(r.Waiting), r.KVUsage, float64(r.KVTotal), float64(r.Slots), r.PromptTokens, r.OutputTokens,
		r.PrefixQueries, r.PrefixHits, r.Served, r.Preemptions, float64(r.MaxAdapters), float64(r.Ignored),
	} {
		if !(v >= 0) || math.IsInf(v, 0) {
			t.Fatalf("a page gave %+v", r)
		}
	}
	if r.KVUsage > 1 || r.PrefixHits > r.PrefixQueries || len(r.Adapters) > maxNames || r.KVUsed() > r.KVTotal {
		t.Fatalf("a page gave %+v", r)
	}
}

func fuzzMetrics(f *testing.F, pattern string, parse pageParser) {
	addSeedPages(f, pattern)
	addSeedPages(f, "rubbish.txt")
	f.Fuzz(func(t *testing.T, page []byte) {
		r, _ := parse(page, Reading{}, testNow)
		checkReading(t, r)
		again, _ := parse(page, r, testNow)
		checkReading(t, again)
	})
}

func FuzzParseVLLM(f *testing.F)     { fuzzMetrics(f, "*.txt", parseVLLM) }
func FuzzParseSGLang(f *testing.F)   { fuzzMetrics(f, "sglang*.txt", parseSGLang) }
func FuzzParseTRTLLM(f *testing.F)   { fuzzMetrics(f, "trtllm*.txt", parseTRTLLM) }
func FuzzParseTriton(f *testing.F)   { fuzzMetrics(f, "triton*.txt", parseTriton) }
func FuzzParseLlamaCPP(f *testing.F) { fuzzMetrics(f, "llamacpp*.txt", parseLlamaCPP) }
func FuzzParseSlots(f *testing.F)    { fuzzMetrics(f, "llamacpp*.json", parseSlots) }

func FuzzParseTGI(f *testing.F) {
	fuzzMetrics(f, "tgi*.txt", func(text []byte, last Reading, now time.Time) (Reading, bool) {
		return parseTGI(text, 4096, last, now)
	})
}

func FuzzParseDCGM(f *testing.F) {
	addSeedPages(f, "dcgm.txt")
	f.Fuzz(func(t *testing.T, page []byte) {
		g, _ := parseDCGM(page, nil, GPUReadings{}, testNow)
		if len(g.Cards) > maxCards {
			t.Fatalf("%d cards", len(g.Cards))
		}
		for _, c := range g.Cards {
			if c.XID < 0 || c.Used < 0 || c.Free < 0 {
				t.Fatalf("a page gave %+v", c)
			}
		}
	})
}

// FuzzParseModels parses one page as every engine's list of models.
func FuzzParseModels(f *testing.F) {
	addSeedPages(f, "*.json")
	f.Fuzz(func(t *testing.T, page []byte) {
		loaded, _ := parsePS(page)
		for _, parse := range []func([]byte) ([]WorkerModel, error){
			parseModels, parseRepository, func(b []byte) ([]WorkerModel, error) { return parseTags(b, loaded) },
		} {
			models, err := parse(page)
			if err != nil {
				continue
			}
			if len(models) > maxNames {
				t.Fatalf("%d models", len(models))
			}
			for _, m := range models {
				if m.ID == "" || len(m.ID) > maxNameBytes || len(m.Parent) > maxNameBytes || m.MaxContext < 0 {
					t.Fatalf("%q gave %+v", page, m)
				}
			}
		}
		if slots, size, _ := parseProps(page); slots < 0 || size < 0 {
			t.Fatalf("%d slots of %d", slots, size)
		}
		var info tgiInfo
		_ = info.parseInfo(page)
		if cards, err := parseModelList(page); err == nil {
			dialectByModels("", cards)
		}
		dialectByMetrics(page)
	})
}
