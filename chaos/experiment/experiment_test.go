package experiment

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/testkit"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var updateGolden = flag.Bool("update", false, "write the golden files again")

// mistakes are experiments with one mistake each, named after it, and the errors that they produce.
const (
	mistakes    = "testdata/mistakes/*.txtar"
	minMistakes = 45
)

// TestMistakesAreReported reads experiments with one mistake each and compares the printed errors.
func TestMistakesAreReported(t *testing.T) {
	testkit.CheckFixtures(t, mistakes, minMistakes, *updateGolden, func(t *testing.T, f testkit.Fixture) string {
		_, err := DecodeExperiment(f.File, f.Text)
		if err == nil {
			t.Fatal("the experiment was taken")
		}
		return err.Error() + "\n"
	})
}

// FuzzDecodeExperiment: no text makes the decoder panic, and decoded experiments can be expanded into cases and their
// small form.
func FuzzDecodeExperiment(f *testing.F) {
	for _, c := range testkit.ReadFixtures(f, mistakes, minMistakes) {
		f.Add(c.Text)
	}
	good, err := os.ReadFile("testdata/good.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Fuzz(func(t *testing.T, text []byte) {
		e, err := DecodeExperiment("fuzz.yaml", text)
		if err != nil {
			return
		}
		e.MissingNeeds("nowhere")
		if e.UseSmallForm(); len(e.expandCases()) == 0 && len(e.Cases) > 0 {
			t.Fatal("no case is left")
		}
	})
}

// FuzzParseAssertion: no text makes the parser panic, and a parsed assertion can be judged.
func FuzzParseAssertion(f *testing.F) {
	for _, line := range []string{
		"goodput(predictive) >= 0.98 * best(goodput)", "ttft_p99(a, chat, value=4) <= (1.2 + 3%) * worst(ttft_p99, case=x-y)", "1ms / 2s < 3us - 4", "((((1", "a(", "∞ > 1",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		s, err := parseAssertion(line)
		if err != nil {
			return
		}
		cases := []CaseReport{{Vary: "rate", Rows: []PolicyRow{{Policy: "predictive", Figures: map[string]SeedSpread{"goodput": {Median: 1}}}}}}
		for _, v := range judgeAssertion(Assertion{Line: line}, cases, "predictive") {
			if v.Figures == "" || v.Left != nil && math.IsNaN(*v.Left) || v.Right != nil && math.IsNaN(*v.Right) {
				t.Fatalf("%q came to %+v", line, v)
			}
		}
		s.figureCalls()
	})
}

func floatPtr(v float64) *float64 { return &v }

// TestAssertionsHoldByTheirFigures: assertions hold exactly if the figures do, and never without figures.
func TestAssertionsHoldByTheirFigures(t *testing.T) {
	row := func(policy string, value *float64, goodput float64, ttft SeedSpread) PolicyRow {
		return PolicyRow{Policy: policy, Value: value, Figures: map[string]SeedSpread{"goodput": {Median: goodput}, "ttft_p99": ttft, "tpot_p99": {Missing: "no answer had two tokens"}}}
	}
	endless := SeedSpread{Missing: "5 % of requests were not answered", Infinite: true}
	cases := []CaseReport{
		{Name: "a", Vary: "rate", Rows: []PolicyRow{
			row("predictive", floatPtr(4), 4, SeedSpread{Median: .2}), row("random", floatPtr(4), 4.1, SeedSpread{Median: .4}),
			row("predictive", floatPtr(8), 7, SeedSpread{Median: .9}), row("random", floatPtr(8), 3, endless),
		}, Capacity: []CapacityRow{{Policy: "predictive", SeedSpread: SeedSpread{Median: 20, AtLeast: true}}, {Policy: "random", SeedSpread: SeedSpread{Median: 6}}}},
		{Name: "b", Vary: "rate", Rows: []PolicyRow{row("predictive", nil, 1, endless), row("random", nil, 2, endless)}, Capacity: []CapacityRow{{Policy: "random", SeedSpread: SeedSpread{Missing: "even 1 is too much"}}}},
	}
	for line, want := range map[string]string{
		"goodput(predictive, a) >= 0.98 * best(goodput, a)":         "false true",
		"goodput(predictive, a) >= 0.97 * best(goodput, a)":         "true true",
		"ttft_p99(predictive, a) <= best(ttft_p99, a)":              "true true",
		"ttft_p99(random, a) <= 300ms":                              "false false",
		"ttft_p99(predictive, b) <= ttft_p99(random, b)":            "false",
		"tpot_p99(predictive, b) <= 1s":                             "false",
		"goodput(predictive, b) + 1 >= goodput(random, b)":          "true",
		"goodput(predictive) > 0":                                   "true true true",
		"goodput(predictive, a, value=4) >= goodput(predictive, b)": "true",
		"capacity(predictive, a) >= 3 * capacity(random, a)":        "true",
		"capacity(predictive, a) >= 4 * capacity(random, a)":        "false",
		"capacity(random, a) <= capacity(predictive, a)":            "true",
		"capacity(random, a) >= capacity(predictive, a)":            "false",
		"capacity(predictive, a) <= 30":                             "false",
		"capacity(random, a) / capacity(predictive, a) <= 1":        "false",
		"capacity(random, b) >= 1":                                  "false",
		"goodput(unknown, a, value=4) >= 1":                         "false",
		"goodput(predictive, a, value=9) >= 1":                      "false",
		"1 / (goodput(predictive, b) - 1) >= 1":                     "false",
		"worst(goodput, a, value=8) <= 3":                           "true",
	} {
		var got []string
		for _, v := range judgeAssertion(Assertion{Line: line}, cases, "predictive") {
			got = append(got, fmt.Sprint(v.Holds))
			if v.Figures == "" {
				t.Errorf("%s: no words", line)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", line, got, want)
		}
	}
	v := judgeAssertion(Assertion{Line: "goodput(predictive, a, value=4) >= 0.98 * best(goodput, a, value=4)"}, cases, "predictive")[0]
	if want := "4.00 /s < 4.02 /s (0.98 * random 4.10 /s)"; v.Figures != want {
		t.Errorf("%q, want %q", v.Figures, want)
	}
}

// TestSpreadOverSeeds: the order of seeds has no effect, the median is within the range, and a seed without a figure
// counts as the worst.
func TestSpreadOverSeeds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, less := rapid.IntRange(1, 12).Draw(t, "n"), rapid.Bool().Draw(t, "less")
		list := make([]seedFigure, n)
		lacking := 0
		for i := range list {
			if list[i].value = rapid.Float64Range(0, 100).Draw(t, "v"); rapid.IntRange(0, 3).Draw(t, "why") == 0 {
				list[i] = seedFigure{value: math.Inf(1), missing: "lost"}
				lacking++
			}
		}
		s := summarizeSeeds(list, less)
		rand.New(rand.NewPCG(1, 2)).Shuffle(n, func(i, j int) { list[i], list[j] = list[j], list[i] })
		if again := summarizeSeeds(list, less); again != s {
			t.Fatalf("%+v and %+v", s, again)
		}
		if (s.Missing != "") != (2*lacking >= n) || s.Infinite != (s.Missing != "" && lacking > 0) {
			t.Fatalf("%d of %d lack: %+v", lacking, n, s)
		}
		if s.Missing == "" && (s.Median < s.Min || s.Median > s.Max) {
			t.Fatalf("%+v", s)
		}
	})
}

// writeTrace writes a small Azure trace.
func writeTrace(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "trace.csv")
	var b strings.Builder
	b.WriteString("TIMESTAMP,ContextTokens,GeneratedTokens\n")
	rng := rand.New(rand.NewPCG(3, 4))
	when := time.Date(2023, 11, 16, 18, 0, 0, 0, time.UTC)
	for range 400 {
		when = when.Add(time.Duration(rng.ExpFloat64() * float64(100*time.Millisecond)))
		fmt.Fprintf(&b, "%s,%d,%d\n", when.Format("2006-01-02 15:04:05.0000000"), 100+rng.IntN(900), 20+rng.IntN(80))
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func goodExperiment(t *testing.T) *Experiment {
	t.Helper()
	text, err := os.ReadFile("testdata/good.yaml")
	if err != nil {
		t.Fatal(err)
	}
	e, err := DecodeExperiment("good.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	e.Workload.Trace = writeTrace(t)
	return e
}

// TestReportDoesNotDependOnParallelism: the same experiment has the same report with any parallelism, all its figures
// are finite, and its assertions are judged at the right places.
func TestReportDoesNotDependOnParallelism(t *testing.T) {
	e := goodExperiment(t)
	var first []byte
	for _, workers := range []int{1, 3} {
		last := 0.0
		r, err := RunExperiment(t.Context(), e, Options{Workers: workers, OnProgress: func(done float64) {
			if done <= last || done > 1 {
				t.Errorf("progress from %v to %v", last, done)
			}
			last = done
		}})
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(r) // NaN cannot be marshaled
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = text
		} else if !bytes.Equal(first, text) {
			t.Errorf("%d at a time come to something else", workers)
		}
		if last != 1 {
			t.Errorf("the progress ends at %v", last)
		}
		if len(r.Lines) != 3 || !r.Lines[0].Holds || !r.Lines[1].Holds || r.Lines[2].Holds || r.Passed || len(r.UnexplainedFailures()) != 0 {
			t.Errorf("lines: %+v", r.Lines)
		}
		checkPrinted(t, r)
	}
}

func checkPrinted(t *testing.T, r *Report) {
	t.Helper()
	var text, page bytes.Buffer
	if err := r.WriteTables(&text); err != nil {
		t.Fatal(err)
	}
	if err := r.WritePage(&page); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{text.String(), page.String()} {
		for _, bad := range []string{"NaN", "Inf", "%!", "http:", "https:", "<script"} {
			if strings.Contains(s, bad) {
				t.Errorf("printed %q in:\n%s", bad, s)
			}
		}
	}
	for _, want := range []string{"<svg", "Time to first token", "Load per worker", "Goodput against rate", "What must hold", r.Title} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

// TestCapacitySearchFindsTheBoundary finds a capacity between its bounds, reports when it is beyond one, and compares
// policies at it.
func TestCapacitySearchFindsTheBoundary(t *testing.T) {
	e := goodExperiment(t)
	e.Values, e.Seeds = nil, 1
	e.SLO.TPOT = 120 * time.Millisecond
	e.Pass = []Assertion{{Line: "capacity(predictive) >= 0.5 * capacity(round_robin)"}, {Line: "goodput(predictive) > 0"}}
	for _, c := range []struct {
		from, to float64
		found    func(SeedSpread) bool
	}{
		{1, 200, func(s SeedSpread) bool { return s.Missing == "" && !s.AtLeast && s.Median > 1 && s.Median < 200 }},
		{0.5, 1, func(s SeedSpread) bool { return s.AtLeast && s.Median == 1 }},
		{150, 200, func(s SeedSpread) bool { return strings.Contains(s.Missing, "even 150 does not meet the SLO: ") }},
	} {
		e.Capacity = CapacitySearch{From: c.from, To: c.to, Attainment: .99, Within: .1}
		r, err := RunExperiment(t.Context(), e, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range r.Cases[0].Capacity {
			if !c.found(row.SeedSpread) {
				t.Errorf("from %v to %v: %+v", c.from, c.to, row)
			}
		}
		if len(r.Cases[0].Rows) != 2 || r.Cases[0].Rows[0].Value == nil {
			t.Errorf("rows: %+v", r.Cases[0].Rows)
		}
		checkPrinted(t, r)
	}
}

// TestMissingNeedsDoNotPass: missing features are reported, and nothing passes.
func TestMissingNeedsDoNotPass(t *testing.T) {
	e := goodExperiment(t)
	e.Needs = []string{"regions"}
	r, err := RunExperiment(t.Context(), e, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Passed || r.Status() != StatusBlocked || len(r.Lines) != 2 || r.Lines[0].Holds || len(r.Cases) != 0 {
		t.Errorf("%+v", r)
	}
	var b bytes.Buffer
	if err := r.WriteTables(&b); err != nil || !strings.Contains(b.String(), "cannot run yet") || !strings.Contains(b.String(), "it needs regions") {
		t.Errorf("%v: %s", err, b.String())
	}
	e.Needs, e.Workload.Trace = nil, ""
	if l := e.MissingNeeds(t.TempDir()); len(l) != 1 || !strings.Contains(l[0], "--traces") {
		t.Errorf("without traces it lacks %q", l)
	}
}

// TestCancelledRunReturnsError: a canceled run returns an error and no partial report.
func TestCancelledRunReturnsError(t *testing.T) {
	e := goodExperiment(t)
	e.Duration = time.Hour
	e.Fleet[0].Count = 50
	e.Values = []float64{30}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := RunExperiment(ctx, e, Options{OnProgress: func(float64) { cancel() }})
	if r != nil || err == nil {
		t.Fatalf("%v, %v", r != nil, err)
	}
}

// TestKeysAreDescribedWithoutGoIdentifiers: descriptions name fields by their YAML keys. Abbreviations such as SLO are
// words of the field as well; a word such as Search may begin a later sentence.
func TestKeysAreDescribedWithoutGoIdentifiers(t *testing.T) {
	fields := map[string]bool{}
	collectFieldNames(reflect.TypeFor[Experiment](), fields)
	if len(fields) < 60 || !fields["MaxPrompt"] || !fields["EstimateError"] {
		t.Fatalf("%d fields: %v", len(fields), fields)
	}
	var b bytes.Buffer
	if err := DescribeKeys(&b); err != nil {
		t.Fatal(err)
	}
	word := regexp.MustCompile(`[A-Za-z0-9]+`)
	for line := range strings.Lines(b.String()) {
		text := strings.TrimSpace(line)
		for _, at := range word.FindAllStringIndex(text, -1) {
			w := text[at[0]:at[1]]
			if !fields[w] || w == strings.ToUpper(w) {
				continue
			}
			compound := strings.ToLower(w[1:]) != w[1:]
			if before := text[:at[0]]; compound || !strings.HasSuffix(before, ". ") && !strings.HasSuffix(before, ": ") {
				t.Errorf("shows the Go identifier %s: %s", w, text)
			}
		}
	}
}

// collectFieldNames adds the names of a struct's fields and of all structs below it.
func collectFieldNames(t reflect.Type, names map[string]bool) {
	for t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return
	}
	for i := range t.NumField() {
		names[t.Field(i).Name] = true
		collectFieldNames(t.Field(i).Type, names)
	}
}

// TestEveryKeyIsExplained: every key of an experiment's file has a description.
func TestEveryKeyIsExplained(t *testing.T) {
	var b bytes.Buffer
	if err := DescribeKeys(&b); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if len(lines) < 150 {
		t.Errorf("only %d lines", len(lines))
	}
	for i, line := range lines {
		if !strings.HasPrefix(line, " ") && (i+1 == len(lines) || !strings.HasPrefix(lines[i+1], "    ")) {
			t.Errorf("key %q has no explanation", line)
		}
	}
}

// TestEarlierNamesAreAcceptedWithAWarning: an experiment that uses names of the last release means the same as one with the
// names in use, and says what to write.
func TestEarlierNamesAreAcceptedWithAWarning(t *testing.T) {
	const text = `
id: E0
title: earlier names
fleet: [{count: 1, gpu: L4, model: Llama-3.1-8B}]
workload: {name: w1}
slo: {ttft: 2s, told: true}
policies: [predictive]
across: [goodput, struck]
pass:
  - line: missed(predictive) <= struck(predictive)
`
	earlier, err := DecodeExperiment("e0.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if !earlier.SLO.Send || earlier.Across[1] != "affected" || earlier.Pass[0].Line != "missed(predictive) <= affected(predictive)" {
		t.Errorf("%+v, %q, %q", earlier.SLO, earlier.Across, earlier.Pass[0].Line)
	}
	if all := strings.Join(earlier.Warnings, "\n"); !strings.Contains(all, "slo.told is now called slo.send") || !strings.Contains(all, "struck is now called affected") {
		t.Errorf("warnings %q", earlier.Warnings)
	}
	now, err := DecodeExperiment("e0.yaml", []byte(strings.NewReplacer("told", "send", "struck", "affected").Replace(text)))
	if err != nil || len(now.Warnings) > 0 {
		t.Errorf("%v, warnings %q", err, now.Warnings)
	}
}
