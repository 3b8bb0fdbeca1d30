package uplink

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Keep holds the last directive on disk, so that a child that starts while its parents are away serves as before. The
// zero Keep, without a folder, keeps nothing.
type Keep struct {
	// Dir is the folder; it is made when it is missing.
	Dir string
}

const (
	keepName = "directive.json"
	maxKept  = 64 << 20
)

// keptFormat numbers the form of the file. A file of a later form is refused: what it says is not known. Form 1 had no
// number, no time and no sum.
const keptFormat = 2

// keptFile is the file: the sum shows a file that was torn or changed, of which the rest might still be read as another
// spec than was declared.
type keptFile struct {
	Format    int             `json:"format"`
	Saved     time.Time       `json:"saved"`
	Sum       string          `json:"sha256"` // of Directive, as it stands in the file
	Directive json.RawMessage `json:"directive"`
}

// kept is the part of a directive that outlives a restart: no keys, and no peers, which age. The index is for people.
type kept struct {
	Generation  uint64  `json:"generation,omitempty"`
	Index       uint64  `json:"index"`
	SpecVersion uint64  `json:"spec_version"`
	PlanEpoch   uint64  `json:"plan_epoch"`
	Spec        string  `json:"spec"`
	Drains      []Drain `json:"drains"`
}

// Save writes d so that a crash leaves the old file or the new one.
func (k Keep) Save(d *Directive) error {
	if k.Dir == "" {
		return nil
	}
	text, err := json.Marshal(kept{Generation: d.Generation, Index: d.Index, SpecVersion: d.SpecVersion, PlanEpoch: d.PlanEpoch, Spec: string(d.Spec), Drains: d.Drains})
	if err == nil {
		text, err = json.Marshal(keptFile{Format: keptFormat, Saved: time.Now().UTC(), Sum: sumOf(text), Directive: text})
	}
	if err != nil {
		return fmt.Errorf("encoding the directive: %w", err)
	}
	if err := WriteWhole(filepath.Join(k.Dir, keepName), text); err != nil {
		return fmt.Errorf("keeping the directive: %w", err)
	}
	return nil
}

// WriteWhole writes a file so that a crash leaves the old one or the new one. It makes the folder when that is missing.
func WriteWhole(name string, text []byte) error {
	dir, base := filepath.Split(name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making the folder: %w", err)
	}
	temp, err := os.CreateTemp(dir, base+"-*")
	if err != nil {
		return err
	}
	_, err = temp.Write(text)
	err = errors.Join(err, temp.Sync(), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp.Name()))
	}
	return nil
}

// ReadWhole reads what WriteWhole wrote, at most so many bytes of it, and says when that was. The text is nil when there is
// no such file, and of an empty one it is not.
func ReadWhole(name string, most int64) (text []byte, written time.Time, err error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, time.Time{}, nil
	}
	if err != nil {
		return nil, time.Time{}, err
	}
	defer func() { _ = f.Close() }() // it was only read
	if text, err = io.ReadAll(io.LimitReader(f, most)); err != nil {
		return nil, time.Time{}, err
	}
	if info, err := f.Stat(); err == nil {
		written = info.ModTime()
	}
	return text, written, nil
}

// Load reads what Save wrote; nil when there is nothing. Its index is 0, so that any live directive of
// its generation or a later one replaces it. A file that cannot be read is an error, and its mending is the next Save.
func (k Keep) Load() (*Directive, error) {
	if k.Dir == "" {
		return nil, nil
	}
	name := filepath.Join(k.Dir, keepName)
	text, written, err := ReadWhole(name, maxKept)
	if err != nil {
		return nil, fmt.Errorf("reading the kept directive: %w", err)
	}
	if text == nil {
		return nil, nil
	}
	d, err := readKept(text)
	if err != nil {
		return nil, fmt.Errorf("reading the kept directive %s: %w", name, err)
	}
	if d.Kept.IsZero() {
		d.Kept = written
	}
	return d, nil
}

// readKept reads the file's text.
func readKept(text []byte) (*Directive, error) {
	var file keptFile
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("it is torn or no such file: %w", err)
	}
	switch {
	case file.Format > keptFormat:
		return nil, fmt.Errorf("its format is %d, this release reads up to %d: it was written by a later one", file.Format, keptFormat)
	case file.Format == 0 && len(file.Directive) == 0:
		file.Directive = text // form 1
	case file.Sum != sumOf(file.Directive):
		return nil, errors.New("it is corrupt: its content does not have the sum that it was written with")
	}
	var was kept
	if err := json.Unmarshal(file.Directive, &was); err != nil {
		return nil, err
	}
	d := &Directive{Generation: was.Generation, SpecVersion: was.SpecVersion, PlanEpoch: was.PlanEpoch, Spec: []byte(was.Spec), Drains: was.Drains, Kept: file.Saved}
	return d, d.check()
}

func sumOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
