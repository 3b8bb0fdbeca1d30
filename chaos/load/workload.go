package load

import (
	_ "embed" // the source whose comments explain the keys
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// Workload describes the requests to a simulated fleet. Fields that are not set have the named workload's defaults.
type Workload struct {
	// Name of the workload: w1 to w10, chats or recorded.
	Name string `yaml:"name"`
	// Traces is the directory of public traces. Default: that of --traces or SPILLWAY_TRACES.
	Traces string `yaml:"traces"`
	// Trace is a trace file to read instead of the workload's own.
	Trace string `yaml:"trace"`
	// Rate is requests per second on average, or trees or chats per second if those arrive; traces are scaled to it,
	// in their order. 0 is the trace's own rate.
	Rate float64 `yaml:"rate"`
	// For is how long requests arrive. 0 is to the trace's end, or without bound.
	For time.Duration `yaml:"for"`
	// Regions of the clients. Default: one.
	Regions []ClientRegion `yaml:"regions"`
	// Clients is the number of clients in each region of a closed loop, each with one request after the other.
	Clients []int `yaml:"clients"`
	// Sessions is the number of sessions, agents or groups of prompts.
	Sessions int `yaml:"sessions"`
	// Over is the time over which sessions begin, evenly.
	Over time.Duration `yaml:"over"`
	// MaxThink limits the pause between an answer and the next request. 0 is no bound.
	MaxThink time.Duration `yaml:"max_think"`
	// Every is the minimum time between two requests of a client in a closed loop. 0 is none.
	Every time.Duration `yaml:"every"`
	// Branch is the number of thoughts that follow each thought of a tree.
	Branch int `yaml:"branch"`
	// Branches is branch by region, if they differ.
	Branches []int `yaml:"branches"`
	// Variant is the kind of an adversarial workload.
	Variant string `yaml:"variant"`
	// MaxPrompt limits the length of prompts, in tokens. 0 is no bound.
	MaxPrompt int `yaml:"max_prompt"`
	// MaxOutput limits the length of answers, in tokens. 0 is no bound.
	MaxOutput int `yaml:"max_output"`
	// Models of ServeGen, such as m-large. Default: m-large, m-mid and m-small.
	Models []string `yaml:"models"`
	// From is the time in a week's trace at which the run begins.
	From time.Duration `yaml:"from"`
	// Repeat restarts a trace that ends before the run does, with new sessions and prompts.
	Repeat bool `yaml:"repeat"`
	// Thin keeps one of so many sessions, whole: the result is a part of the traffic with all its prefix reuse. 0 and
	// 1 keep all.
	Thin int `yaml:"thin"`
	// Seed of random draws.
	Seed uint64 `yaml:"-"`
}

// ClientRegion is a region with clients.
type ClientRegion struct {
	// Name of a region of the fleet.
	Name string `yaml:"name"`
	// Share is its part of the sessions, relative to the other regions. 0 is 1.
	Share float64 `yaml:"share"`
	// Shift is how far its local time is ahead.
	Shift time.Duration `yaml:"shift"`
}

// workloadKind is a workload with a name.
type workloadKind struct {
	name, title string
	openRoots   func(w *Workload) (RootSource, error)
}

func workloadKinds() []workloadKind {
	return []workloadKind{
		{"w1", "chats without shared prefixes: Azure 2023 conversations", (*Workload).openAzure},
		{"w2", "long chats with shared prefixes: Mooncake conversations, de-quantised", (*Workload).openConversations},
		{"w3", "retrieval and agents with shared prefixes: Mooncake synthetic", (*Workload).openSynthetic},
		{"w4", "agents in closed loops, with their own thinking times: public sessions", (*Workload).openAgents},
		{"w5", "days of a fleet: ServeGen's clients in regions with local times", (*Workload).openServeGen},
		{"w6", "trees of thoughts in closed loops: branch 2 (15 requests a tree) or 4 (85)", (*Workload).openTrees},
		{"w7", "customers' shared prefixes: 150 groups of 5 prompts, 6,000 + 1,200 tokens in, 1,000 out", (*Workload).openSaaS},
		{"w8", "code generation in closed loops: long contexts, 2 to 20 turns", (*Workload).openCoding},
		{"w9", "reasoning: 1,250 tokens in, 8,000 out", (*Workload).openReasoning},
		{"w10", "adversaries: variant hot, peak, greedy or burst", (*Workload).openAdversary},
		{"chats", "short chats in closed loops, 19 % alike within a user and 2.5 % across", (*Workload).openChats},
		{"recorded", "the requests of an earlier run, live or simulated: trace is its record", (*Workload).openRecord},
	}
}

// WorkloadNames returns the names that can be opened, each with a description.
func WorkloadNames() (names, titles []string) {
	for _, k := range workloadKinds() {
		names, titles = append(names, k.name), append(titles, k.title)
	}
	return names, titles
}

// OpenWorkload returns the workload's requests. The error names the field to correct.
func OpenWorkload(w Workload) (*Feed, error) {
	i := slices.IndexFunc(workloadKinds(), func(k workloadKind) bool { return k.name == strings.ToLower(w.Name) })
	if i < 0 {
		names, _ := WorkloadNames()
		return nil, fmt.Errorf("unknown workload %q: use one of %s", w.Name, strings.Join(names, ", "))
	}
	if err := w.applyDefaults(); err != nil {
		return nil, fmt.Errorf("workload %s: %w", w.Name, err)
	}
	roots, err := workloadKinds()[i].openRoots(&w)
	if err != nil {
		return nil, fmt.Errorf("workload %s: %w", w.Name, err)
	}
	if w.Thin > 1 {
		roots = ThinSessions(roots, w.Thin, w.Seed)
	}
	f := NewFeed(roots, w.For)
	f.minInterval = w.Every
	return f, nil
}

func (w *Workload) applyDefaults() error {
	if len(w.Regions) == 0 {
		w.Regions = []ClientRegion{{Name: "home"}}
	}
	for i := range w.Regions {
		if s := w.Regions[i].Share; s < 0 || math.IsNaN(s) || s > 1e9 {
			return fmt.Errorf("regions: the share %v of %q is not a part", s, w.Regions[i].Name)
		}
	}
	switch {
	case w.Rate < 0 || math.IsNaN(w.Rate) || w.Rate > 1e7:
		return fmt.Errorf("rate %v: use 0 to ten million a second", w.Rate)
	case w.For < 0 || w.Over < 0 || w.MaxThink < 0 || w.From < 0 || w.Every < 0:
		return fmt.Errorf("for, from, over, max_think and every are lengths of time: use 0 or more")
	case w.Sessions < 0 || w.Branch < 0 || w.MaxPrompt < 0 || w.MaxOutput < 0 || w.Thin < 0:
		return fmt.Errorf("sessions, branch, max_prompt, max_output and thin are counts: use 0 or more")
	case len(w.Clients) > len(w.Regions):
		return fmt.Errorf("clients: %d numbers for %d regions", len(w.Clients), len(w.Regions))
	}
	return nil
}

// regionOfSession is the index of a session's region.
func (w *Workload) regionOfSession(session uint64) int32 {
	var all float64
	for _, r := range w.Regions {
		all += regionShare(r)
	}
	x := float64(mixBits(session^mixBits(w.Seed^0x4e60))>>11) / (1 << 53) * all
	for i, r := range w.Regions {
		if x -= regionShare(r); x < 0 {
			return int32(i)
		}
	}
	return int32(len(w.Regions) - 1)
}

func regionShare(r ClientRegion) float64 {
	if r.Share == 0 {
		return 1
	}
	return r.Share
}

// ThinSessions keeps one session of k, whole. The choice depends only on the session's name and the seed.
func ThinSessions(roots RootSource, k int, seed uint64) RootSource {
	return &thinnedSource{roots, uint64(max(k, 1)), seed}
}

type thinnedSource struct {
	RootSource
	keepOneOf, seed uint64
}

// Close closes the roots.
func (t *thinnedSource) Close() error {
	if c, ok := t.RootSource.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

func (t *thinnedSource) NextRequest() (*Request, error) {
	for {
		r, err := t.RootSource.NextRequest()
		if err != nil || mixBits(r.Session^mixBits(t.seed^0x7417))%t.keepOneOf == 0 {
			return r, err
		}
	}
}

//go:embed workload.go
var workloadSource string

// WorkloadSource is the Go source whose comments explain the keys of a Workload.
func WorkloadSource() string { return workloadSource }
