package load

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// Workload names the requests that a fleet of the lab is asked. Fields left out take what the named workload is known by.
type Workload struct {
	// Name is one of Workloads.
	Name string `yaml:"name"`
	// Traces is the folder of public traces. Default ../shared/traces.
	Traces string `yaml:"traces"`
	// Trace is a trace file to read instead of the workload's own.
	Trace string `yaml:"trace"`
	// Rate is requests per second on average, or trees or chats per second where these are what arrives; traces are
	// squeezed or stretched to it, in their order. 0 is the trace's own.
	Rate float64 `yaml:"rate"`
	// For is how long requests fall due. 0 is to the trace's end, or without bound.
	For time.Duration `yaml:"for"`
	// Regions are where the clients are. Default: one.
	Regions []Home `yaml:"regions"`
	// Clients is how many clients of each region ask in a closed loop: one thing after the other.
	Clients []int `yaml:"clients"`
	// Sessions is how many sessions there are, of agents or groups of prompts.
	Sessions int `yaml:"sessions"`
	// Over is the time over which sessions begin, evenly.
	Over time.Duration `yaml:"over"`
	// MaxThink cuts longer pauses between an answer and what is asked next. 0 is no bound.
	MaxThink time.Duration `yaml:"max_think"`
	// Every is the least time from one request of a closed loop's client to the next, however soon the answer comes. 0 is none.
	Every time.Duration `yaml:"every"`
	// Branch is how many thoughts follow each thought of a tree.
	Branch int `yaml:"branch"`
	// Branches is Branch by region where they differ.
	Branches []int `yaml:"branches"`
	// Variant is the kind of an adversarial workload.
	Variant string `yaml:"variant"`
	// MaxPrompt cuts longer prompts and MaxOutput longer answers, in tokens. 0 is no bound.
	MaxPrompt int `yaml:"max_prompt"`
	MaxOutput int `yaml:"max_output"`
	// Models of ServeGen that are asked for, such as m-large. Default: m-large, m-mid and m-small.
	Models []string `yaml:"models"`
	// From is where in a week's trace the run begins.
	From time.Duration `yaml:"from"`
	// Repeat begins a trace anew when it ends before the run does, with sessions and prompts that are new.
	Repeat bool `yaml:"repeat"`
	// Thin keeps one session of so many, whole: what arrives is a part of the traffic with all its reuse. 0 and 1 keep all.
	Thin int `yaml:"thin"`
	// Seed makes what is drawn repeatable.
	Seed uint64 `yaml:"-"`
}

// Home is a region that clients are at home in.
type Home struct {
	Name string `yaml:"name"`
	// Share is its part of the sessions, against the other regions'. 0 is 1.
	Share float64 `yaml:"share"`
	// Shift is how far its local time is ahead.
	Shift time.Duration `yaml:"shift"`
}

// known is a workload that can be named.
type known struct {
	name, title string
	open        func(w *Workload) (Roots, error)
}

func knowns() []known {
	return []known{
		{"w1", "chats without shared prefixes: Azure 2023 conversations", (*Workload).azure},
		{"w2", "long chats with shared prefixes: Mooncake conversations, de-quantised", (*Workload).conversations},
		{"w3", "retrieval and agents with shared prefixes: Mooncake synthetic", (*Workload).synthetic},
		{"w4", "agents in closed loops, with their own thinking times: public sessions", (*Workload).agentic},
		{"w5", "a planet's days: ServeGen's clients at home in regions with local times", (*Workload).planet},
		{"w6", "trees of thoughts in closed loops: branch 2 (15 requests a tree) or 4 (85)", (*Workload).trees},
		{"w7", "customers' shared prefixes: 150 groups of 5 prompts, 6,000 + 1,200 tokens in, 1,000 out", (*Workload).saas},
		{"w8", "code generation in closed loops: long contexts, 2 to 20 turns", (*Workload).coding},
		{"w9", "reasoning: 1,250 tokens in, 8,000 out", (*Workload).reasoning},
		{"w10", "adversaries: variant hot, peak, greedy or burst", (*Workload).adverse},
		{"chats", "short chats in closed loops, 19 % alike within a user and 2.5 % across", (*Workload).chats},
		{"recorded", "what a run was asked, live or simulated: trace is its record", (*Workload).recorded},
	}
}

// Workloads returns the names that can be opened, each with what it is.
func Workloads() (names, titles []string) {
	for _, k := range knowns() {
		names, titles = append(names, k.name), append(titles, k.title)
	}
	return names, titles
}

// Open returns the workload's requests. The error says which field to correct.
func Open(w Workload) (*Feed, error) {
	i := slices.IndexFunc(knowns(), func(k known) bool { return k.name == strings.ToLower(w.Name) })
	if i < 0 {
		names, _ := Workloads()
		return nil, fmt.Errorf("unknown workload %q: use one of %s", w.Name, strings.Join(names, ", "))
	}
	if err := w.complete(); err != nil {
		return nil, fmt.Errorf("workload %s: %w", w.Name, err)
	}
	roots, err := knowns()[i].open(&w)
	if err != nil {
		return nil, fmt.Errorf("workload %s: %w", w.Name, err)
	}
	if w.Thin > 1 {
		roots = Thinned(roots, w.Thin, w.Seed)
	}
	f := NewFeed(roots, w.For)
	f.every = w.Every
	return f, nil
}

func (w *Workload) complete() error {
	if w.Traces == "" {
		w.Traces = "../shared/traces"
	}
	if len(w.Regions) == 0 {
		w.Regions = []Home{{Name: "home"}}
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

// region is where a session is at home.
func (w *Workload) region(session uint64) int32 {
	var all float64
	for _, r := range w.Regions {
		all += share(r)
	}
	x := float64(mix(session^mix(w.Seed^0x4e60))>>11) / (1 << 53) * all
	for i, r := range w.Regions {
		if x -= share(r); x < 0 {
			return int32(i)
		}
	}
	return int32(len(w.Regions) - 1)
}

func share(r Home) float64 {
	if r.Share == 0 {
		return 1
	}
	return r.Share
}

// Thinned keeps one session of k, whole. A session's fate depends on its name and the seed alone.
func Thinned(roots Roots, k int, seed uint64) Roots {
	return &thinned{roots, uint64(max(k, 1)), seed}
}

type thinned struct {
	Roots
	k, seed uint64
}

// Close closes what the roots read from.
func (t *thinned) Close() error {
	if c, ok := t.Roots.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

func (t *thinned) Next() (*Request, error) {
	for {
		r, err := t.Roots.Next()
		if err != nil || mix(r.Session^mix(t.seed^0x7417))%t.k == 0 {
			return r, err
		}
	}
}
