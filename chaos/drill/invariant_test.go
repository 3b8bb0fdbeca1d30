package drill

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/fault"
)

// testDrill is a drill of 150 s with a fault from 50 to 80 s.
func testDrill(steps ...Step) *DrillFile {
	if len(steps) == 0 {
		steps = []Step{{Kind: fault.RegionDead, Scope: fault.ScopeRegion, Target: "frankfurt"}}
	}
	for i := range steps {
		steps[i].At, steps[i].For = 50*time.Second, 30*time.Second
	}
	return &DrillFile{
		Name: "test", Title: "A test", Hypothesis: []string{"It holds."}, Steps: steps, Load: LoadShape{Rate: 1, Duration: 150 * time.Second, WarmUp: 10 * time.Second, PromptTokens: 10, AnswerTokens: 5, Seed: 1},
		Controls: []Control{{Slice{Region: "tokyo"}, "ttft p99", .1}}, Budget: &HarmBudget{Share: .01},
	}
}

const second = time.Second

// allKinds are the kinds of events that invariants read.
func allKinds() (out []EventKind) {
	for _, in := range invariantTable {
		out = append(out, in.needs...)
	}
	return out
}

func makeLog(events ...Event) *EventLog {
	l := &EventLog{Header: LogHeader{Format: LogFormat, Way: WayLive, Observes: allKinds()}, Events: events}
	l.SortEvents()
	return l
}

// oneRequest is the events of a complete request.
func oneRequest(id uint64, due time.Duration, region, tenant string, ttft float64) []Event {
	worker := region + "/a/w1"
	return []Event{
		{At: due, Kind: RequestDue, Request: id, Target: region, Text: tenant, Number: 5},
		{At: due, Kind: AttemptStarted, Request: id, Node: worker},
		{At: due + 100*time.Millisecond, Kind: FirstToken, Request: id, Node: worker},
		{At: due + second, Kind: RequestEnded, Request: id, Node: worker, Text: outcomeOK, TTFT: ttft, TPOT: .02, Number: 5, Good: true},
	}
}

// steadyLoad is one request a second from each region.
func steadyLoad(until time.Duration) (out []Event) {
	id := uint64(0)
	for at := time.Duration(0); at < until; at += second {
		for _, region := range []string{"frankfurt", "tokyo"} {
			id++
			out = append(out, oneRequest(id, at, region, mainTenant, .1)...)
		}
	}
	return out
}

// changed is a copy of events with some of them changed.
func changed(events []Event, change func(*Event)) []Event {
	out := slices.Clone(events)
	for i := range out {
		change(&out[i])
	}
	return out
}

// invariantCase is events that hold an invariant, and events that break it.
type invariantCase struct {
	file       *DrillFile
	good, evil []Event
}

func invariantCases() map[string]invariantCase {
	load := steadyLoad(150 * second)
	surge := testDrill(Step{Kind: SurgeKind, Scope: ScopeTenant, Target: batchTenant})
	drain := testDrill(Step{Kind: DrainKind, Scope: fault.ScopeRegion, Target: "frankfurt"})
	telemetry := testDrill(Step{Kind: fault.Partition, Scope: fault.ScopeRegion, Target: "frankfurt", Params: map[string]string{"class": "uplink", "from": "g1"}})
	answer := func(at time.Duration, node, client, region string, epoch uint64) Event {
		return Event{At: at, Kind: DNSAnswered, Node: node, Text: client, Target: region, Number: epoch, Value: 5}
	}
	one := oneRequest(1, 60*second, "frankfurt", mainTenant, .1)
	twice := append(slices.Clone(one), Event{At: 60*second + 500*time.Millisecond, Kind: AttemptStarted, Request: 1, Node: "tokyo/a/w1"})
	resumed := append(slices.Clone(one), Event{At: 60*second + 500*time.Millisecond, Kind: AttemptStarted, Request: 1, Node: "tokyo/a/w1", Number: 2})
	single := func(e Event, change func(*Event)) invariantCase {
		bad := e
		change(&bad)
		return invariantCase{good: []Event{e}, evil: []Event{bad}}
	}
	cut := func(e *Event) {
		if e.Kind == RequestEnded {
			e.Text = "cut"
		}
	}
	return map[string]invariantCase{
		"I-1": {good: []Event{answer(55*second, "g1", "tokyo", "tokyo", 1)}, evil: []Event{{At: 55 * second, Kind: DNSFailed, Node: "g1", Text: "tokyo"}}},
		"I-2": {good: []Event{answer(51*second, "g1", "frankfurt", "frankfurt", 1), answer(56*second, "g1", "frankfurt", "tokyo", 2)}, evil: []Event{answer(56*second, "g1", "frankfurt", "frankfurt", 1)}},
		"I-3": {good: []Event{answer(1*second, "g1", "tokyo", "tokyo", 1), answer(2*second, "g1", "tokyo", "tokyo", 2)}, evil: []Event{answer(1*second, "g1", "tokyo", "tokyo", 2), answer(2*second, "g1", "tokyo", "tokyo", 1)}},
		"I-4": {good: []Event{{Kind: PlanApplied, Node: "g1", Number: 3, Text: "a"}, {Kind: PlanApplied, Node: "g2", Number: 3, Text: "a"}}, evil: []Event{{Kind: PlanApplied, Node: "g1", Number: 3, Text: "a"}, {Kind: PlanApplied, Node: "g2", Number: 3, Text: "b"}}},
		"I-5": single(answer(55*second, "g1", "tokyo", "tokyo", 1), func(e *Event) { e.Target = "" }),
		"I-6": {good: []Event{{Kind: StateHash, Node: "g1", Number: 3, Text: "a"}, {Kind: StateHash, Node: "g2", Number: 3, Text: "a"}}, evil: []Event{{Kind: StateHash, Node: "g1", Number: 3, Text: "a"}, {Kind: StateHash, Node: "g2", Number: 3, Text: "b"}}},
		"I-7": {good: []Event{{Kind: WriteAcked, Text: "k", Number: 1}}, evil: []Event{{Kind: WriteAcked, Text: "k", Number: 1}, {Kind: WriteMissing, Text: "k", Number: 1}}},
		"I-8": {good: []Event{{Kind: TermSeen, Node: "g1", Number: 1}, {Kind: TermSeen, Node: "g2", Number: 2}}, evil: []Event{{Kind: TermSeen, Node: "g1", Number: 1}, {Kind: TermSeen, Node: "g2", Number: 1}}},
		"I-9": {
			good: append([]Event{{Kind: ResidencyKnown, Text: mainTenant, Target: "frankfurt"}}, one...),
			evil: append([]Event{{Kind: ResidencyKnown, Text: mainTenant, Target: "tokyo,virginia"}}, one...),
		},
		"I-10": single(Event{Kind: ScopeReturned, Node: "g1", Number: 24, Value: 24, Count: 24}, func(e *Event) { e.Value = 16 }),
		"I-11": single(Event{Kind: ShareMeasured, Target: "tokyo", Number: 10_000, Value: .51, TTFT: .5}, func(e *Event) { e.Value = .53 }),
		"I-12": {good: one, evil: one[:3]},
		"I-13": {good: resumed, evil: twice},
		"I-14": {good: one, evil: changed(one, func(e *Event) {
			if e.Kind == RequestEnded {
				e.Number = 6
			}
		})},
		"I-15": {file: drain, good: one, evil: changed(one, cut)},
		"I-16": single(Event{Kind: CacheUsage, Node: "w", Number: 10, Value: 10}, func(e *Event) { e.Number = 11 }),
		"I-17": single(Event{Kind: QueueLength, Node: "z", Number: 10, Value: 10}, func(e *Event) { e.Number = 11 }),
		"I-18": single(Event{Kind: AttemptStarted, Request: 1, Value: 60}, func(e *Event) { e.Value = 62 }),
		"I-19": {file: surge, good: load, evil: changed(load, func(e *Event) {
			if e.Kind == RequestEnded && e.At > 55*second && e.At < 75*second {
				e.TTFT = .13
			}
		})},
		"I-20": {good: one, evil: append(slices.Clone(one[:2]), one[1])},
		"I-21": single(Event{Kind: CancelSeen, Request: 1, Value: .5}, func(e *Event) { e.Value = 1.5 }),
		"I-22": single(Event{Kind: ProbeSent, Node: "w", Count: 1}, func(e *Event) { e.Count = 2 }),
		"I-23": {
			file: telemetry, good: []Event{answer(49*second, "g1", "frankfurt", "frankfurt", 1), answer(51*second, "g1", "frankfurt", "frankfurt", 1)},
			evil: []Event{answer(49*second, "g1", "frankfurt", "frankfurt", 1), answer(51*second, "g1", "frankfurt", "tokyo", 1)},
		},
		"I-24": single(Event{Kind: StormEnded, Count: 200, Value: 4}, func(e *Event) { e.Value = 6 }),
		"I-25": {
			good: []Event{{At: 20 * second, Kind: ProcessUsage, Node: "g1", Number: 100, Value: 100 << 20}, {At: 140 * second, Kind: ProcessUsage, Node: "g1", Number: 101, Value: 101 << 20}},
			evil: []Event{{At: 20 * second, Kind: ProcessUsage, Node: "g1", Number: 100, Value: 100 << 20}, {At: 140 * second, Kind: ProcessUsage, Node: "g1", Number: 200, Value: 101 << 20}},
		},
		"I-26": single(Event{Kind: ProcessStopped, Node: "g1", Value: 3}, func(e *Event) { e.Value = 11 }),
		"I-27": single(Event{Kind: SummaryRejected, Node: "g1", Text: "rejected"}, func(e *Event) { e.Text = "accepted" }),
		"I-28": {good: []Event{{Kind: SecretsChecked, Count: 3}}, evil: []Event{{Kind: SecretFound, Node: "log", Text: "the key of acme"}}},
		"I-29": single(Event{Kind: SizeReturned, Node: "g1", Number: 40, Value: 120}, func(e *Event) { e.Value = 121 }),
		"I-30": single(Event{Kind: CertificateUsed, Node: "g1", Text: "refused", Code: "expired"}, func(e *Event) { e.Text = "accepted" }),
		"I-31": {good: load, evil: changed(load, func(e *Event) {
			if e.Kind == RequestEnded && e.At > 120*second {
				e.Good = e.Request%10 != 0
			}
		})},
		"I-32": {good: load, evil: changed(load, func(e *Event) {
			if e.Kind == RequestEnded && e.At > 55*second && e.At < 75*second && strings.HasPrefix(e.Node, "tokyo") {
				e.TTFT = .12
			}
		})},
	}
}

// TestEveryInvariantCanFail: each invariant holds over one log and is broken by a small change of it.
func TestEveryInvariantCanFail(t *testing.T) {
	cases := invariantCases()
	status := func(f *DrillFile, id string, events []Event) InvariantResult {
		if f == nil {
			f = testDrill()
		}
		list := CheckInvariants(f, makeLog(events...))
		return list[slices.IndexFunc(list, func(r InvariantResult) bool { return r.ID == id })]
	}
	for i, in := range invariantTable {
		c, ok := cases[in.id]
		if want := "I-" + formatNumber(float64(i+1)); in.id != want || !ok {
			t.Errorf("invariant %d is %s, want %s with a case", i+1, in.id, want)
			continue
		}
		if r := status(c.file, in.id, c.good); r.Status != InvariantHeld || r.Checked == 0 {
			t.Errorf("%s: the good log gives %+v", in.id, r)
		}
		if r := status(c.file, in.id, c.evil); r.Status != InvariantBroken || r.First == "" {
			t.Errorf("%s: the other log gives %+v", in.id, r)
		}
	}
	if len(invariantTable) != 32 {
		t.Errorf("%d invariants, want 32", len(invariantTable))
	}
}

// TestTotalLossOfReportsIsALoss: while some global node gets the reports of a region, no answer may leave it (I-23). When none does, the
// region counts as lost, and all answers must leave it (I-2).
func TestTotalLossOfReportsIsALoss(t *testing.T) {
	answer := func(at time.Duration, region string) Event {
		return Event{At: at, Kind: DNSAnswered, Node: "g1", Text: "frankfurt", Target: region, Number: 1}
	}
	stays := []Event{answer(49*second, "frankfurt"), answer(51*second, "frankfurt"), answer(56*second, "frankfurt")}
	leaves := []Event{answer(49*second, "frankfurt"), answer(51*second, "tokyo"), answer(56*second, "tokyo")}
	for _, c := range []struct {
		from, direction string
		events          []Event
		want2, want23   InvariantStatus
	}{
		{"g1", "", stays, NothingToCheck, InvariantHeld},
		{"g1", "", leaves, NothingToCheck, InvariantBroken},
		{"", "", stays, InvariantBroken, NothingToCheck},
		{"global", "", stays, InvariantBroken, NothingToCheck},
		{"global", "out", leaves, InvariantHeld, NothingToCheck},
		{"global", "in", leaves, NothingToCheck, InvariantBroken},
	} {
		f := testDrill(Step{Kind: fault.Partition, Scope: fault.ScopeRegion, Target: "frankfurt", Params: map[string]string{"class": "uplink", "from": c.from, "direction": c.direction}})
		list := CheckInvariants(f, makeLog(c.events...))
		if list[1].Status != c.want2 || list[22].Status != c.want23 {
			t.Errorf("reports cut from %q, direction %q: I-2 %s and I-23 %s, want %s and %s", c.from, c.direction, list[1].Status, list[22].Status, c.want2, c.want23)
		}
	}
}

// TestWhatIsNotObservedIsNotHeld: an invariant whose events the run cannot record is not counted as held.
func TestWhatIsNotObservedIsNotHeld(t *testing.T) {
	l := makeLog(steadyLoad(150 * second)...)
	l.Header.Observes = []EventKind{RequestDue, RequestEnded}
	for _, r := range CheckInvariants(testDrill(), l) {
		observable := slices.Contains([]string{"I-12", "I-14", "I-19", "I-32"}, r.ID)
		if (r.Status == NotObservable) == observable {
			t.Errorf("%s: %s", r.ID, r.Status)
		}
	}
}

// TestChangedLogIsFound: a stored log is read back as it was, and a change of any line is found.
func TestChangedLogIsFound(t *testing.T) {
	l := makeLog(steadyLoad(3 * second)...)
	var b bytes.Buffer
	chain, err := l.WriteLog(&b)
	if err != nil {
		t.Fatal(err)
	}
	got, again, err := ReadLog(bytes.NewReader(b.Bytes()))
	if err != nil || again != chain || !slices.Equal(got.Events, l.Events) {
		t.Fatalf("reading it back: %v, chain %s, want %s", err, again, chain)
	}
	lines := strings.SplitAfter(b.String(), "\n")
	for i, line := range lines[:len(lines)-1] {
		forged := slices.Clone(lines)
		forged[i] = strings.Replace(line, "1", "2", 1)
		if _, _, err := ReadLog(strings.NewReader(strings.Join(forged, ""))); err == nil {
			t.Errorf("a change of line %d is not found", i+1)
		}
	}
	if _, end, err := ReadLog(strings.NewReader(strings.Join(lines[:len(lines)-2], ""))); err == nil && end == chain {
		t.Error("a log without its last line has the same chain value")
	}
}

// FuzzReadLog: no input makes the reader panic.
func FuzzReadLog(f *testing.F) {
	l := makeLog(steadyLoad(second)...)
	var b bytes.Buffer
	if _, err := l.WriteLog(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, text []byte) {
		l, _, err := ReadLog(bytes.NewReader(text))
		if (err == nil) == (l == nil) {
			t.Errorf("log %v with error %v", l != nil, err)
		}
	})
}
