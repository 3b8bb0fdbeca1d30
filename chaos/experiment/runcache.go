package experiment

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

// maxCachedRunBytes bounds the file of one run.
const maxCachedRunBytes = 16 << 20

// RunCache is a directory of finished runs, so that an interrupted experiment continues where it stopped. A run is
// identified by the build and all of its inputs: any difference causes a new run.
type RunCache struct {
	dir string
}

// OpenRunCache stores runs of this build in a directory of its own under dir. It fails if the build cannot be read or
// the directory not be created.
func OpenRunCache(dir string) (*RunCache, error) {
	build, err := buildID()
	if err != nil {
		return nil, err
	}
	dir = filepath.Join(dir, build)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("storing runs: %w", err)
	}
	return &RunCache{dir: dir}, nil
}

// buildID identifies the running program by its contents.
func buildID() (string, error) {
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

// runKey is all that a run's result depends on, in addition to the build.
type runKey struct {
	Policy, Traces string
	Seed           uint64
	Case           Case
	MaxUnderWay    int
	Value, Guess   *float64
	Search         bool
	Experiment     Experiment // without the fields that only select which runs are made
}

// fileName is the file of a job, which runs as c.
func (k *RunCache) fileName(p *experimentRun, j *runJob, c *Case) (string, error) {
	e := *p.experiment
	e.Cases, e.Pass, e.Policies, e.Across, e.Small, e.Seeds, e.Screen, e.Takes = nil, nil, nil, nil, SmallForm{}, 0, 0, 0
	a := runKey{Policy: j.policy, Traces: p.options.Traces, Seed: j.seed, Case: *c, MaxUnderWay: c.maxUnderWay, Value: j.value, Search: j.search, Experiment: e}
	if j.guess != nil {
		a.Guess = &j.guess.value
	}
	text, err := json.Marshal(a)
	if err != nil {
		return "", fmt.Errorf("naming a run: %w", err)
	}
	sum := sha256.Sum256(text)
	return filepath.Join(k.dir, fmt.Sprintf("%s-%s-%d-%s.run", e.ID, j.policy, j.seed, hex.EncodeToString(sum[:12]))), nil
}

// loadRun reads a run; false if there is none, or it cannot be read.
func (k *RunCache) loadRun(name string) (*cachedRun, bool) {
	f, err := os.Open(name)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	r, err := readCachedRun(io.LimitReader(f, maxCachedRunBytes))
	return r, err == nil
}

func readCachedRun(from io.Reader) (*cachedRun, error) {
	r := &cachedRun{}
	if err := gob.NewDecoder(from).Decode(r); err != nil {
		return nil, fmt.Errorf("reading a stored run: %w", err)
	}
	return r, nil
}

// saveRun writes a run atomically.
func (k *RunCache) saveRun(name string, r *cachedRun) error {
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(r); err != nil {
		return fmt.Errorf("storing a run: %w", err)
	}
	if b.Len() > maxCachedRunBytes {
		return nil // it will be run again
	}
	if err := os.WriteFile(name+".new", b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("storing a run: %w", err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		return fmt.Errorf("storing a run: %w", err)
	}
	return nil
}

// cachedRun is the stored form of a run's outcome or a search's result.
type cachedRun struct {
	Outcome *cachedOutcome
	Search  *cachedSearch
}

type cachedFigure struct {
	Value   float64
	Missing string
	AtLeast bool
	Below   float64
}

type cachedOutcome struct {
	Figures          map[string]cachedFigure
	Tenants, Regions map[string]map[string]cachedFigure
	TTFT             *sim.Distribution
	Counts           sim.RequestCounts
	Load             []float64
	Limit, EarlyEnd  string
}

type cachedSearch struct {
	Sample                          cachedFigure
	Probes                          []SearchProbe
	Limit, EarlyEnd                 string
	Required, UnderWay, LeastFailed float64
}

// mapValues applies turn to the values of a map.
func mapValues[A, B any](in map[string]A, turn func(A) B) map[string]B {
	if in == nil {
		return nil
	}
	out := make(map[string]B, len(in))
	for k, v := range in {
		out[k] = turn(v)
	}
	return out
}

func toCachedFigures(f map[string]seedFigure) map[string]cachedFigure {
	return mapValues(f, seedFigure.toCached)
}

func toFigures(f map[string]cachedFigure) map[string]seedFigure {
	return mapValues(f, cachedFigure.toFigure)
}

// useCachedRun uses a stored result; false if it does not match the job.
func (p *experimentRun) useCachedRun(j *runJob, r *cachedRun) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	j.fromCache = j.fillFromCache(r)
	return j.fromCache
}
