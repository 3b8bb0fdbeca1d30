package drill

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/chaos/fault"
	"github.com/spillway-lb/spillway/internal/testkit"
)

var update = flag.Bool("update", false, "write the messages of testdata/mistakes")

// TestMistakesPointAtTheirPlace: every mistake is reported with its line, its column, a caret and what to write.
func TestMistakesPointAtTheirPlace(t *testing.T) {
	testkit.CheckFixtures(t, "testdata/mistakes/*.txtar", 19, *update, func(t *testing.T, c testkit.Fixture) string {
		_, err := ParseFile(strings.TrimSuffix(c.File, ".yaml")+".txt", c.Text)
		if err == nil {
			t.Fatal("the file is accepted")
		}
		return err.Error() + "\n"
	})
}

// TestCatalogueIsFormatted: every file of the catalogue is read without a mistake, is in its formatted form, names a drill by its
// file's name, and names a runbook that exists.
func TestCatalogueIsFormatted(t *testing.T) {
	files, err := filepath.Glob("drills/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no drills", err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		f, err := ParseFile(filepath.Base(name), text)
		if err != nil {
			t.Error(err)
			continue
		}
		if diff := cmp.Diff(string(text), string(FormatFile(f))); diff != "" {
			t.Errorf("%s is not in its formatted form (-file +formatted):\n%s", name, diff)
		}
		if f.Name+".txt" != filepath.Base(name) {
			t.Errorf("%s holds the drill %s", name, f.Name)
		}
		if f.Runbook != "" {
			if _, err := os.Stat(path.Join("../..", f.Runbook)); err != nil {
				t.Errorf("%s names a runbook that does not exist: %v", name, err)
			}
		}
	}
}

// sameDrill compares two drills, except for places in their files.
func sameDrill(a, b *DrillFile) string {
	return cmp.Diff(a, b, cmpopts.IgnoreUnexported(Step{}), cmpopts.EquateEmpty())
}

// drawTime draws a time that files can hold.
func drawTime(low, high time.Duration) *rapid.Generator[time.Duration] {
	return rapid.Custom(func(t *rapid.T) time.Duration {
		unit := rapid.SampledFrom([]time.Duration{time.Millisecond, 100 * time.Millisecond, time.Second}).Draw(t, "unit")
		return time.Duration(rapid.Int64Range(int64((low+unit-1)/unit), int64(high/unit)).Draw(t, "count")) * unit
	})
}

var anyPercent = rapid.Custom(func(t *rapid.T) float64 {
	return fromPercent(float64(rapid.IntRange(0, 100_000).Draw(t, "thousandths of a percent")) / 1000)
})

// drawDrill draws a correct drill.
func drawDrill(t *rapid.T) *DrillFile {
	word := rapid.StringMatching(`[a-z][a-z0-9-]{0,20}`)
	text := rapid.StringMatching(`[A-Za-z#,>][A-Za-z0-9 ,.#%<>=]{0,60}[A-Za-z.]`)
	f := &DrillFile{
		Name: word.Draw(t, "name"), Title: text.Draw(t, "title"), Hypothesis: rapid.SliceOfN(text, 1, 3).Draw(t, "hypothesis"),
		Load: LoadShape{
			Rate: float64(rapid.IntRange(1, 10_000).Draw(t, "tenths")) / 10, Duration: drawTime(3*time.Minute, 10*time.Minute).Draw(t, "for"), WarmUp: drawTime(0, 30*time.Second).Draw(t, "warm-up"),
			PromptTokens: rapid.IntRange(100, 5000).Draw(t, "prompts"), AnswerTokens: rapid.IntRange(1, 500).Draw(t, "answers"), Seed: rapid.Uint64Range(0, 1000).Draw(t, "seed"), Nightly: .25,
		},
		Fleet:  FleetShape{Regions: rapid.SampledFrom([]int{0, 2, 3, 4}).Draw(t, "regions"), Gateways: rapid.IntRange(0, 3).Draw(t, "gateways"), WeightsGBps: rapid.SampledFrom([]float64{0, .5, 2}).Draw(t, "weights")},
		SLO:    SLOTarget{TTFT: drawTime(0, 5*time.Second).Draw(t, "ttft")},
		Budget: &HarmBudget{Share: anyPercent.Draw(t, "budget")},
		Stops:  []StopRule{{"goodput", "<", anyPercent.Draw(t, "stop"), drawTime(minStopWindow, time.Minute).Draw(t, "stop for")}},
	}
	if rapid.Bool().Draw(t, "open") {
		f.Open = text.Draw(t, "finding")
	}
	if rapid.Bool().Draw(t, "prefixes") {
		f.Load.Prefixes, f.Load.PrefixTokens = rapid.IntRange(1, 50).Draw(t, "count"), rapid.IntRange(1, 99).Draw(t, "length")
	}
	steps := []Step{
		{Kind: fault.RegionDead, Scope: fault.ScopeRegion, Target: "frankfurt"},
		{Kind: fault.LeaderDead},
		{Kind: fault.LinkDelay, Scope: fault.ScopeLink, Target: "raft:g1>*", Params: map[string]string{"delay": "80ms", "direction": "forward"}},
		{Kind: fault.WorkerSlow, Scope: fault.ScopeWorker, Target: "virginia-a-*", Params: map[string]string{"factor": "2.5"}},
		{Kind: fault.LinkLoss, Scope: fault.ScopeRegion, Target: "virginia", Params: map[string]string{"share": "0.05"}},
		{Kind: SurgeKind, Scope: ScopeTenant, Target: "nightly", Params: map[string]string{"factor": "5"}},
		{Kind: DrainKind, Scope: fault.ScopeZone, Target: "frankfurt/a", Params: map[string]string{"over": "10s"}},
	}
	for i := range rapid.IntRange(1, 4).Draw(t, "steps") {
		s := rapid.SampledFrom(steps).Draw(t, fmt.Sprint("step ", i))
		s.At, s.For = drawTime(35*time.Second, time.Minute).Draw(t, "at"), drawTime(time.Second, time.Minute).Draw(t, "step for")
		f.Steps = append(f.Steps, s)
	}
	for _, phase := range []RunPhase{PhaseBefore, PhaseDuring, PhaseAfter} {
		m := rapid.SampledFrom(metricTable).Draw(t, "metric")
		c := Condition{Phase: phase, Metric: m.name, Op: rapid.SampledFrom(comparisons).Draw(t, "op"), Value: anyPercent.Draw(t, "value"), OfBefore: phase == PhaseAfter}
		if m.unit == "s" && !c.OfBefore {
			c.Value = drawTime(time.Millisecond, time.Minute).Draw(t, "bound").Seconds()
		}
		c.Slice = rapid.SampledFrom([]Slice{{}, {Region: "virginia"}, {Tenant: "acme"}}).Draw(t, "slice")
		f.Conditions = append(f.Conditions, c)
	}
	f.Controls = []Control{{Slice{Region: "virginia"}, "ttft p99", anyPercent.Draw(t, "within")}}
	f.Objectives = []Objective{{rapid.SampledFrom(RungNames()).Draw(t, "rung"), drawTime(0, time.Minute).Draw(t, "rto")}}
	f.Pages = []ExpectedPage{{"SpillwayPage", drawTime(0, time.Minute).Draw(t, "page")}}
	return f
}

// TestFormatRoundTrips: a formatted drill is read back as the same drill.
func TestFormatRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawDrill(t)
		text := FormatFile(want)
		got, err := ParseFile("drawn.txt", text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if diff := sameDrill(want, got); diff != "" {
			t.Fatalf("(-want +got):\n%s\n%s", diff, text)
		}
	})
}

// FuzzParseFile: no input makes the parser panic, every mistake has a place and a hint, and what is accepted round-trips.
func FuzzParseFile(f *testing.F) {
	files, _ := filepath.Glob("drills/*.txt")
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	for _, line := range []string{"at 30 s for", "load 1 requests/s for 2 s, ,", "during ttft p50 >= 10 % of before", "harmed <= # 3", "drill \xff", "at 1s for 1s link_loss link x share 101 %"} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := ParseFile("fuzz.txt", text)
		if err != nil {
			list, ok := err.(MistakeList)
			if !ok || len(list) == 0 {
				t.Fatalf("the error is no list of mistakes: %v", err)
			}
			for _, m := range list {
				if m.Line < 1 || m.Column < 1 || m.Text == "" || m.Hint == "" {
					t.Errorf("incomplete mistake %+v", m)
				}
			}
			_ = err.Error()
			return
		}
		formatted := FormatFile(d)
		again, err := ParseFile("again.txt", formatted)
		if err != nil {
			t.Fatalf("the formatted form is refused: %v\n%s", err, formatted)
		}
		if !bytes.Equal(formatted, FormatFile(again)) {
			t.Errorf("formatting twice differs:\n%s\n%s", formatted, FormatFile(again))
		}
	})
}
