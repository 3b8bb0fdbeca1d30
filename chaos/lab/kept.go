package lab

import (
	"bytes"
	"crypto/sha256"
	"encoding/gob"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spillway-lb/spillway/chaos/sim"
)

// maxKept bounds the file of one run.
const maxKept = 16 << 20

// Kept is a folder of finished runs, so that an experiment which was interrupted goes on where it stopped. A run is known by the build
// that made it and by all that it was asked: whatever differs is run anew.
type Kept struct {
	dir string
}

// OpenKept keeps runs of this build in a folder of its own under dir. The error is that of reading the build or making the folder.
func OpenKept(dir string) (*Kept, error) {
	build, err := thisBuild()
	if err != nil {
		return nil, err
	}
	dir = filepath.Join(dir, build)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("keeping runs: %w", err)
	}
	return &Kept{dir: dir}, nil
}

// thisBuild names the running program by what it consists of.
func thisBuild() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding the running program: %w", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("reading the running program: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("reading the running program: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

// asked is all that a run's outcome depends on, beside the build.
type asked struct {
	Policy, Traces string
	Seed           uint64
	Case           Case
	Most           int
	Value, Guess   *float64
	Search         bool
	Experiment     Experiment // without what only says which runs are made
}

// name is the file of a job, which runs as c.
func (k *Kept) name(p *play, j *job, c *Case) (string, error) {
	e := *p.e
	e.Cases, e.Pass, e.Policies, e.Across, e.Small, e.Seeds, e.Screen, e.Takes = nil, nil, nil, nil, Small{}, 0, 0, 0
	a := asked{Policy: j.policy, Traces: p.o.Traces, Seed: j.seed, Case: *c, Most: c.most, Value: j.value, Search: j.search, Experiment: e}
	if j.guess != nil {
		a.Guess = &j.guess.v
	}
	text, err := json.Marshal(a)
	if err != nil {
		return "", fmt.Errorf("naming a run: %w", err)
	}
	sum := sha256.Sum256(text)
	return filepath.Join(k.dir, fmt.Sprintf("%s-%s-%d-%s.run", e.ID, j.policy, j.seed, hex.EncodeToString(sum[:12]))), nil
}

// load reads a run; false where there is none, or none that can be read.
func (k *Kept) load(name string) (*keptRun, bool) {
	f, err := os.Open(name)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	r, err := readKept(io.LimitReader(f, maxKept))
	return r, err == nil
}

func readKept(from io.Reader) (*keptRun, error) {
	r := &keptRun{}
	if err := gob.NewDecoder(from).Decode(r); err != nil {
		return nil, fmt.Errorf("reading a kept run: %w", err)
	}
	return r, nil
}

// save writes a run. A program that is killed meanwhile leaves no half of it.
func (k *Kept) save(name string, r *keptRun) error {
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(r); err != nil {
		return fmt.Errorf("keeping a run: %w", err)
	}
	if b.Len() > maxKept {
		return nil // it is run anew
	}
	if err := os.WriteFile(name+".new", b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("keeping a run: %w", err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		return fmt.Errorf("keeping a run: %w", err)
	}
	return nil
}

// keptRun is an outcome, or what a search found, as it is written.
type keptRun struct {
	Outcome *keptOutcome
	Found   *keptFound
}

type keptSample struct {
	V      float64
	Why    string
	Beyond bool
	Below  float64
}

type keptOutcome struct {
	Figures          map[string]keptSample
	Tenants, Regions map[string]map[string]keptSample
	TTFT             *sim.Dist
	Counts           sim.Counts
	Load             []float64
	Limit, Short     string
}

type keptFound struct {
	Sample          keptSample
	Probes          []Probe
	Limit, Short    string
	Bar, Busy, Next float64
}

func (s sample) kept() keptSample { return keptSample{s.v, s.why, s.beyond, s.below} }

func (s keptSample) sample() sample { return sample{s.V, s.Why, s.Beyond, s.Below} }

// mapped is a map with its values turned.
func mapped[A, B any](in map[string]A, turn func(A) B) map[string]B {
	if in == nil {
		return nil
	}
	out := make(map[string]B, len(in))
	for k, v := range in {
		out[k] = turn(v)
	}
	return out
}

func keepFigures(f map[string]sample) map[string]keptSample { return mapped(f, sample.kept) }

func figuresOf(f map[string]keptSample) map[string]sample { return mapped(f, keptSample.sample) }

// kept is what a job came to, as it is written.
func (j *job) keptRun() *keptRun {
	if f := j.found; f != nil {
		return &keptRun{Found: &keptFound{f.sample.kept(), f.probes, f.limit, f.short, f.bar, f.busy, f.next}}
	}
	o := j.outcome
	return &keptRun{Outcome: &keptOutcome{
		keepFigures(o.figures), mapped(o.tenants, keepFigures), mapped(o.regions, keepFigures), &o.ttft, o.counts, o.load, o.limit, o.short,
	}}
}

// take puts in what was kept; false where it is not what the job asks for.
func (p *play) take(j *job, r *keptRun) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	j.kept = j.fill(r)
	return j.kept
}

func (j *job) fill(r *keptRun) bool {
	if f := r.Found; f != nil && j.search {
		j.found = &found{f.Sample.sample(), f.Probes, f.Limit, f.Bar, f.Busy, f.Short, f.Next}
		return true
	}
	o := r.Outcome
	if o == nil || j.search || len(o.Figures) == 0 {
		return false
	}
	j.outcome = &outcome{figuresOf(o.Figures), mapped(o.Tenants, figuresOf), mapped(o.Regions, figuresOf), sim.Dist{}, o.Counts, o.Load, o.Limit, o.Short}
	if o.TTFT != nil {
		j.outcome.ttft = *o.TTFT
	}
	return true
}
