package engine

import (
	"bytes"
	"encoding/json"
	"math"
	"path"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/tools/txtar"
)

var (
	testNow      = time.Unix(1763640200, 0)
	knownReading = Reading{Running: 1, Waiting: 2, KVUsage: 0.3, KVReported: true, KVTotal: 16000, PromptTokens: 5, OutputTokens: 6, PrefixQueries: 9, PrefixHits: 8, Preemptions: 9}
)

func readGolden(t testing.TB, name string) []byte {
	t.Helper()
	for _, page := range readPages(t) {
		if page.Name == name {
			return page.Data
		}
	}
	t.Fatalf("no archive in testdata has a page %s", name)
	return nil
}

// readPages returns the pages of all engines: each engine's are in one archive.
func readPages(t testing.TB) (pages []txtar.File) {
	t.Helper()
	archives, err := filepath.Glob(filepath.Join("testdata", "*.txtar"))
	if err != nil || len(archives) == 0 {
		t.Fatal("no archives in testdata", err)
	}
	for _, file := range archives {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, archive.Files...)
	}
	return pages
}

func parserOf(file string) pageParser {
	switch strings.SplitN(strings.TrimSuffix(file, ".txt"), "_", 2)[0] {
	case "sglang":
		return parseSGLang
	case "trtllm":
		return parseTRTLLM
	case "triton":
		return parseTriton
	case "tgi":
		return func(text []byte, last Reading, now time.Time) (Reading, bool) {
			return parseTGI(text, 81920, last, now)
		}
	case "llamacpp":
		return parseLlamaCPP
	}
	return parseVLLM
}

func TestGoldenPages(t *testing.T) {
	for _, c := range []struct {
		file string
		want Reading
	}{
		{"vllm.txt", Reading{Running: 7, Waiting: 3, KVUsage: 0.25, KVReported: true, KVTotal: 28174 * 16, PromptTokens: 123456, OutputTokens: 65432, PrefixQueries: 51200, PrefixHits: 20480, Preemptions: 2, MaxAdapters: 4}},
		{"vllm_lora.txt", Reading{Running: 4, Waiting: 1, KVUsage: 0.125, KVReported: true, KVTotal: 32000, Served: 1005, Adapters: []string{"legal", "medical", "sql"}, MaxAdapters: 4}},
		{"vllm_older.txt", Reading{Running: 3, KVUsage: 0.5, KVReported: true, PrefixQueries: 800, PrefixHits: 200}},
		{"two_engines.txt", Reading{Running: 10, Waiting: 2, KVUsage: 0.4, KVReported: true, KVTotal: 32000}},
		{"old_name.txt", Reading{Running: 3, KVUsage: 0.5, KVReported: true, Asleep: true}},
		{"sglang.txt", Reading{Running: 17, Waiting: 3, KVUsage: 0.3, KVReported: true, KVTotal: 200000, PromptTokens: 100000, OutputTokens: 20000, PrefixQueries: 100000, PrefixHits: 40000, Served: 512, Preemptions: 4, MaxAdapters: 8}},
		{"trtllm.txt", Reading{Running: 9, Waiting: 2, KVUsage: 0.35, KVReported: true, KVTotal: 128000, Slots: 64, PrefixQueries: 32000, PrefixHits: 8000, Served: 42}},
		{"triton.txt", Reading{Running: 7, Waiting: 3, KVUsage: 0.15, KVReported: true, KVTotal: 6239*64 + 1000*32, Slots: 640, Served: 1030}},
		{"triton_plain.txt", Reading{Waiting: 5, Served: 77}},
		{"tgi.txt", Reading{Running: 8, Waiting: 3, KVUsage: 0.25, KVReported: true, KVTotal: 81920, PromptTokens: 64000, OutputTokens: 32000, Served: 250}},
		{"llamacpp.txt", Reading{Running: 3, Waiting: 2, PromptTokens: 51200, OutputTokens: 9000}},
	} {
		c.want.ReadAt, c.want.LoadReadAt = testNow, testNow
		got, ok := parserOf(c.file)(readGolden(t, c.file), Reading{}, testNow)
		if diff := cmp.Diff(c.want, got); !ok || diff != "" {
			t.Errorf("%s: %v, unlike wanted (-) (+):\n%s", c.file, ok, diff)
		}
	}
}

func TestImpossibleValuesAreIgnoredAndCounted(t *testing.T) {
	got, ok := parseVLLM(readGolden(t, "malformed.txt"), knownReading, testNow)
	if ok || !reflect.DeepEqual(got, knownReading) {
		t.Errorf("rubbish gave %+v", got)
	}
	for page, ignored := range map[string]int64{
		"vllm:num_requests_running NaN\n":                                                                       1,
		"vllm:num_requests_running{a=\"b\"} -3\nvllm:num_requests_waiting +Inf\n":                               2,
		"vllm:kv_cache_usage_perc 17\n":                                                                         1,
		"vllm:prefix_cache_queries_total 10\nvllm:prefix_cache_hits_total 11\n":                                 1, // more hits than queries
		"vllm:num_requests_running 1\nvllm:num_requests_running 900\n":                                          1, // one series twice
		"vllm:num_requests_running twelve\n":                                                                    1,
		"vllm:num_requests_running{engine=\"0\" 4\n":                                                            1,
		"vllm:lora_requests_info{max_lora=\"2\",running_lora_adapters=\"x\"} -1\n":                              1,
		"vllm:cache_config_info{block_size=\"1000000\",num_gpu_blocks=\"1000000000000\"} 1\n":                   1,
		"vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"None\"} 1\n":                                 0, // not allocated yet
		"vllm:prompt_tokens_total 5 6 7\nvllm:generation_tokens_total 1e300\nvllm:num_preemptions_total 0x1p80": 3,
	} {
		// One valid line in addition to the invalid ones, so that the page is recognized as vLLM's.
		got, ok := parseVLLM([]byte(page+"\nvllm:request_success_total 3\n"), knownReading, testNow)
		if !ok || got.Ignored != ignored {
			t.Errorf("%q: %d values ignored, wanted %d", page, got.Ignored, ignored)
		}
		if got.Served != 3 || got.PrefixHits != knownReading.PrefixHits || got.KVUsage != knownReading.KVUsage || got.KVTotal != knownReading.KVTotal {
			t.Errorf("%q spoilt what was known: %+v", page, got)
		}
		again, _ := parseVLLM([]byte(page+"\nvllm:request_success_total 3\n"), got, testNow)
		if again.Ignored != 2*ignored {
			t.Errorf("%q: the count does not go on: %d", page, again.Ignored)
		}
	}
}

func TestLoadKeepsItsAgeWhenNotReported(t *testing.T) {
	first, _ := parseVLLM([]byte("vllm:num_requests_running 4\n"), Reading{}, testNow)
	later := testNow.Add(time.Minute)
	next, ok := parseVLLM([]byte("vllm:num_requests_running NaN\nvllm:prompt_tokens_total 7\n"), first, later)
	if !ok || next.Running != 4 || !next.LoadReadAt.Equal(testNow) || !next.ReadAt.Equal(later) {
		t.Errorf("a load without a series is %+v", next)
	}
}

func TestStaleAdaptersDoNotHideOtherEngines(t *testing.T) {
	page := `vllm:lora_requests_info{engine="0",max_lora="2",running_lora_adapters="a",waiting_lora_adapters=""} 100
vllm:lora_requests_info{engine="1",max_lora="2",running_lora_adapters="b,b",waiting_lora_adapters=""} 50
vllm:lora_requests_info{engine="0",max_lora="2",running_lora_adapters="gone",waiting_lora_adapters=""} 99
vllm:lora_requests_info{engine="1",max_lora="2",running_lora_adapters="",waiting_lora_adapters=""} 40
`
	got, _ := parseVLLM([]byte(page), Reading{Adapters: []string{"gone"}}, testNow)
	if diff := cmp.Diff([]string{"a", "b"}, got.Adapters); diff != "" {
		t.Error(diff)
	}
	got, _ = parseVLLM([]byte(`vllm:lora_requests_info{max_lora="2",running_lora_adapters="",waiting_lora_adapters=""} 1`), got, testNow)
	if len(got.Adapters) != 0 {
		t.Errorf("idle adapters are %v", got.Adapters)
	}
}

func TestParseSlots(t *testing.T) {
	got, ok := parseSlots(readGolden(t, "llamacpp_slots.json"), Reading{Waiting: 4}, testNow)
	if !ok || got.Running != 3 || got.Waiting != 0 || got.Slots != 4 || !got.LoadReadAt.Equal(testNow) {
		t.Errorf("slots say %+v", got)
	}
	if got, ok := parseSlots([]byte(`[{"state":1},{"state":0}]`), Reading{}, testNow); !ok || got.Running != 1 {
		t.Errorf("old slots say %+v", got)
	}
	for _, bad := range []string{`{}`, `[]`, `null`, `[1`} {
		if _, ok := parseSlots([]byte(bad), knownReading, testNow); ok {
			t.Errorf("%s was taken for slots", bad)
		}
	}
}

func TestReadingUnits(t *testing.T) {
	r := Reading{KVUsage: 0.25, KVReported: true, KVTotal: 1000, PromptTokens: 10, Served: 4}
	if r.KVUsed() != 250 || (&Reading{KVUsage: 0.5, KVReported: true}).KVUsed() != -1 || (&Reading{KVTotal: 100}).KVUsed() != -1 {
		t.Error("KVUsed is wrong")
	}
	if !r.IsRestart(&Reading{PromptTokens: 3, Served: 4}) || !r.IsRestart(&Reading{PromptTokens: 10}) || r.IsRestart(&Reading{PromptTokens: 10, Served: 4}) {
		t.Error("Restarted is wrong")
	}
}

func TestParseModelLists(t *testing.T) {
	got, err := parseModels([]byte(`{"object":"list","data":[{"id":"llama-3.1-8b","object":"model","max_model_len":131072,"parent":null},{"id":"sql","parent":"llama-3.1-8b"},{"id":""},{"id":"neg","max_model_len":-4}]}`))
	want := []WorkerModel{{ID: "llama-3.1-8b", MaxContext: 131072}, {ID: "sql", Parent: "llama-3.1-8b"}, {ID: "neg"}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	if _, err := parseModels([]byte(`<html>`)); err == nil {
		t.Error("a page of HTML was taken for a list of models")
	}
	many := struct {
		Data []listedModel `json:"data"`
	}{make([]listedModel, 5000)}
	for i := range many.Data {
		many.Data[i].ID = strings.Repeat("x", 1+i%300)
	}
	page, _ := json.Marshal(many)
	if got, err := parseModels(page); err != nil || len(got) != maxNames {
		t.Errorf("%d models, %v", len(got), err)
	}
}

// BenchmarkParseVLLM reads a page of vLLM, most of whose lines are histograms, with this package and with Prometheus's
// own parser, which reads every line.
func BenchmarkParseVLLM(b *testing.B) {
	page := readGolden(b, "vllm.txt")
	var hist strings.Builder
	for i := range 1500 {
		hist.WriteString(`vllm:e2e_request_latency_seconds_bucket{engine="0",le="` + strings.Repeat("1", 1+i%4) + `",model_name="llama-3.1-8b"} 123456.0` + "\n")
	}
	page = append(page, hist.String()...)
	parse := func() error {
		parseVLLM(page, Reading{}, testNow)
		return nil
	}
	parseByLibrary := func() error {
		parser := expfmt.NewTextParser(model.LegacyValidation)
		_, err := parser.TextToMetricFamilies(bytes.NewReader(page))
		return err
	}
	for name, run := range map[string]func() error{"own": parse, "library": parseByLibrary} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(page)))
			b.ReportAllocs()
			for b.Loop() {
				if err := run(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

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
	addSeedPages(f, "malformed.txt")
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
