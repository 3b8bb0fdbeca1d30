package archive

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/chaos/drill"
)

// Archive is a folder of runs.
type Archive struct{ dir string }

// Entry is a run in the index.
type Entry struct {
	ID      string        `json:"id"`
	Drill   string        `json:"drill"`
	Way     string        `json:"way"`
	Seed    uint64        `json:"seed"`
	Outcome drill.Outcome `json:"outcome"`
	Why     string        `json:"why"`
	Version string        `json:"version"`
	Chain   string        `json:"chain"`
	// Ended is when the run was stored.
	Ended time.Time `json:"ended"`
}

// Open returns the archive of a folder, which is made with the first run.
func Open(dir string) *Archive { return &Archive{dir} }

func (a *Archive) indexPath() string { return filepath.Join(a.dir, "runs.jsonl") }
func (a *Archive) leverPath() string { return filepath.Join(a.dir, "stop-all") }

// RunDir is the folder of a run.
func (a *Archive) RunDir(id string) string { return filepath.Join(a.dir, id) }

// Entries returns the index, in the order of runs.
func (a *Archive) Entries() (out []Entry, err error) {
	text, err := os.ReadFile(a.indexPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the index of runs: %w", err)
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		var e Entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", a.indexPath(), n, err)
		}
		out = append(out, e)
	}
	return out, lines.Err()
}

// FindRun returns a run by its ID; "last" is the newest.
func (a *Archive) FindRun(id string) (Entry, error) {
	all, err := a.Entries()
	if err != nil {
		return Entry{}, err
	}
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].ID == id || id == "last" {
			return all[i], nil
		}
	}
	return Entry{}, fmt.Errorf("%s has no run %q\nhint: `spillway drill list --runs` lists them; --dir names another folder", a.dir, id)
}

// NewRun makes the folder of a run and returns its ID, and the chain value of the run before.
func (a *Archive) NewRun(name string) (id, previous string, err error) {
	all, err := a.Entries()
	if err != nil {
		return "", "", err
	}
	if len(all) > 0 {
		previous = all[len(all)-1].Chain
	}
	if err := os.MkdirAll(a.dir, 0o755); err != nil {
		return "", "", fmt.Errorf("making the folder of runs: %w", err)
	}
	for n := len(all) + 1; n < len(all)+1000; n++ {
		id = fmt.Sprintf("%04d-%s", n, name)
		taken, err := filepath.Glob(filepath.Join(a.dir, fmt.Sprintf("%04d-*", n)))
		if err != nil {
			return "", "", err
		}
		if len(taken) > 0 {
			continue // a run that is going on, or that ended without a report
		}
		if err := os.Mkdir(a.RunDir(id), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", "", fmt.Errorf("making the folder of the run: %w", err)
		} else if err == nil {
			return id, previous, nil
		}
	}
	return "", "", fmt.Errorf("%s has too many unfinished runs: remove their folders", a.dir)
}

// StoreRun judges a run's log, writes it with its reports, and adds it to the index.
func (a *Archive) StoreRun(id string, l, predicted *drill.EventLog) (*drill.Report, error) {
	chain, err := writeLog(filepath.Join(a.RunDir(id), "log.jsonl"), l)
	if err != nil {
		return nil, err
	}
	if predicted != nil {
		if _, err := writeLog(filepath.Join(a.RunDir(id), "predicted.jsonl"), predicted); err != nil {
			return nil, err
		}
	}
	r, err := drill.NewReport(l, chain, predicted)
	if err != nil {
		return nil, err
	}
	if err := a.writeReports(id, r); err != nil {
		return nil, err
	}
	line, err := json.Marshal(Entry{
		ID: id, Drill: r.Name, Way: r.Way, Seed: r.Seed, Outcome: r.Verdict.Outcome, Why: r.Verdict.Why, Version: r.Version, Chain: chain, Ended: time.Now().UTC().Truncate(time.Second),
	})
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(a.indexPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("writing the index of runs: %w", err)
	}
	_, err = f.Write(append(line, '\n'))
	return r, errors.Join(err, f.Close())
}

func writeLog(path string, l *drill.EventLog) (chain string, err error) {
	f, err := os.Create(path)
	if err != nil {
		return "", fmt.Errorf("writing the log: %w", err)
	}
	chain, err = l.WriteLog(f)
	return chain, errors.Join(err, f.Close())
}

func (a *Archive) writeReports(id string, r *drill.Report) error {
	for name, write := range map[string]func(*bytes.Buffer) error{
		"report.json": func(b *bytes.Buffer) error { return r.WriteJSON(b) }, "report.md": func(b *bytes.Buffer) error { return r.WriteMarkdown(b) }, "report.html": func(b *bytes.Buffer) error { return r.WritePage(b) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			return fmt.Errorf("making %s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(a.RunDir(id), name), b.Bytes(), 0o644); err != nil {
			return fmt.Errorf("writing the report: %w", err)
		}
	}
	return nil
}

// ReadRun reads a run's log and verifies its hashes. predicted is nil if there is none.
func (a *Archive) ReadRun(id string) (l, predicted *drill.EventLog, chain string, err error) {
	if l, chain, err = readLog(filepath.Join(a.RunDir(id), "log.jsonl")); err != nil {
		return nil, nil, "", err
	}
	predicted, _, err = readLog(filepath.Join(a.RunDir(id), "predicted.jsonl"))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return l, predicted, chain, err
}

func readLog(path string) (*drill.EventLog, string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, "", fmt.Errorf("opening the log: %w", err)
	}
	defer f.Close()
	l, chain, err := drill.ReadLog(f)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", path, err)
	}
	return l, chain, nil
}

// VerifyRun checks that a run's log is unchanged, that the index has its chain value, that it follows from the run before, and
// that judging it again gives the same outcome. It returns what is wrong.
func (a *Archive) VerifyRun(id string) (problems []string, err error) {
	all, err := a.Entries()
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(all, func(e Entry) bool { return e.ID == id })
	if at < 0 {
		_, err := a.FindRun(id)
		return nil, err
	}
	l, predicted, chain, err := a.ReadRun(id)
	if err != nil {
		return []string{err.Error()}, nil
	}
	if chain != all[at].Chain {
		problems = append(problems, "the log has the chain value "+chain+", and the index has "+all[at].Chain)
	}
	previous := ""
	if at > 0 {
		previous = all[at-1].Chain
	}
	if l.Header.Previous != previous {
		problems = append(problems, "it does not follow from the run before it in the index: a run was removed, added or changed")
	}
	r, err := drill.NewReport(l, chain, predicted)
	if err != nil {
		return append(problems, err.Error()), nil
	}
	if r.Verdict.Outcome != all[at].Outcome {
		problems = append(problems, fmt.Sprintf("judged again it is %s (%s), and the index has %s", r.Verdict.Outcome, r.Verdict.Why, all[at].Outcome))
	}
	return problems, nil
}

// PullLever forbids further runs and asks every run to end. ReleaseLever allows them again.
func (a *Archive) PullLever(reason string) error {
	if err := os.MkdirAll(a.dir, 0o755); err != nil {
		return fmt.Errorf("making the folder of runs: %w", err)
	}
	return os.WriteFile(a.leverPath(), []byte(reason+"\n"), 0o644)
}

// ReleaseLever allows runs again.
func (a *Archive) ReleaseLever() error {
	if err := os.Remove(a.leverPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// LeverReason is why no run may start; empty: runs may.
func (a *Archive) LeverReason() string { return readReason(a.leverPath()) }

// AbortRun asks a run to end.
func (a *Archive) AbortRun(id, reason string) error {
	if info, err := os.Stat(a.RunDir(id)); err != nil || !info.IsDir() {
		_, err := a.FindRun(id)
		return err
	}
	return os.WriteFile(filepath.Join(a.RunDir(id), "abort"), []byte(reason+"\n"), 0o644)
}

// StopReason is why a run has to end: it was aborted, or the lever was pulled. Empty: it may go on.
func (a *Archive) StopReason(id string) string {
	if reason := readReason(filepath.Join(a.RunDir(id), "abort")); reason != "" {
		return "aborted by an operator: " + reason
	}
	if reason := a.LeverReason(); reason != "" {
		return "stop-all: " + reason
	}
	return ""
}

func readReason(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	if reason := strings.TrimSpace(string(text)); reason != "" {
		return reason
	}
	return "no reason given"
}
