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

// DirectiveFile keeps the last directive on disk, so that a child that starts while its parents are unreachable
// serves as before. The zero DirectiveFile, without a directory, stores nothing.
type DirectiveFile struct {
	// Dir is the directory; it is created when it is missing.
	Dir string
}

const (
	directiveFileName     = "directive.json"
	maxDirectiveFileBytes = 64 << 20
)

// directiveFileFormat is the version of the file format. A file of a later format is refused, because its content is
// unknown. Format 1 had no number, no time and no checksum.
const directiveFileFormat = 2

// directiveEnvelope is the file. Its checksum detects a truncated or changed file, whose remains might decode as
// another spec.
type directiveEnvelope struct {
	Format    int             `json:"format"`
	Saved     time.Time       `json:"saved"`
	SHA256    string          `json:"sha256"` // of Directive, as it stands in the file
	Directive json.RawMessage `json:"directive"`
}

// persistedDirective is the part of a directive that survives a restart: without keys, and without peers, which
// become stale. The index is only for readers of the file.
type persistedDirective struct {
	Generation  uint64        `json:"generation,omitempty"`
	Index       uint64        `json:"index"`
	SpecVersion uint64        `json:"spec_version"`
	PlanEpoch   uint64        `json:"plan_epoch"`
	Spec        string        `json:"spec"`
	Drains      []ActiveDrain `json:"drains"`
}

// SaveDirective writes d so that a crash leaves the old file or the new one.
func (k DirectiveFile) SaveDirective(d *Directive) error {
	if k.Dir == "" {
		return nil
	}
	text, err := json.Marshal(persistedDirective{Generation: d.Generation, Index: d.Index, SpecVersion: d.SpecVersion, PlanEpoch: d.PlanEpoch, Spec: string(d.Spec), Drains: d.Drains})
	if err == nil {
		text, err = json.Marshal(directiveEnvelope{Format: directiveFileFormat, Saved: time.Now().UTC(), SHA256: hexSHA256(text), Directive: text})
	}
	if err != nil {
		return fmt.Errorf("encoding the directive: %w", err)
	}
	if err := WriteFileAtomic(filepath.Join(k.Dir, directiveFileName), text); err != nil {
		return fmt.Errorf("persisting the directive: %w", err)
	}
	return nil
}

// WriteFileAtomic writes a file so that a crash leaves the old or the new content. It creates the directory if it is
// missing.
func WriteFileAtomic(name string, text []byte) error {
	dir, base := filepath.Split(name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("creating the directory: %w", err)
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

// ReadFileLimited reads a file of WriteFileAtomic, up to a size limit in bytes, and returns its time of writing. The
// text is nil when there is no such file, and not nil for an empty one.
func ReadFileLimited(name string, most int64) (text []byte, written time.Time, err error) {
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

// LoadDirective reads the file of SaveDirective; nil when there is none. The index is 0, so that any live directive
// of its generation or a later one replaces it. An unreadable file is an error, and the next SaveDirective replaces
// it.
func (k DirectiveFile) LoadDirective() (*Directive, error) {
	if k.Dir == "" {
		return nil, nil
	}
	name := filepath.Join(k.Dir, directiveFileName)
	text, written, err := ReadFileLimited(name, maxDirectiveFileBytes)
	if err != nil {
		return nil, fmt.Errorf("reading the persisted directive: %w", err)
	}
	if text == nil {
		return nil, nil
	}
	d, err := decodeDirectiveFile(text)
	if err != nil {
		return nil, fmt.Errorf("reading the persisted directive %s: %w", name, err)
	}
	if d.PersistedAt.IsZero() {
		d.PersistedAt = written
	}
	return d, nil
}

// decodeDirectiveFile decodes the file's text.
func decodeDirectiveFile(text []byte) (*Directive, error) {
	var file directiveEnvelope
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("it is truncated or not a directive file: %w", err)
	}
	switch {
	case file.Format > directiveFileFormat:
		return nil, fmt.Errorf("its format is %d, this release reads up to %d: it was written by a later one", file.Format, directiveFileFormat)
	case file.Format == 0 && len(file.Directive) == 0:
		file.Directive = text // format 1
	case file.SHA256 != hexSHA256(file.Directive):
		return nil, errors.New("it is corrupt: its content does not match its checksum")
	}
	var was persistedDirective
	if err := json.Unmarshal(file.Directive, &was); err != nil {
		return nil, err
	}
	d := &Directive{Generation: was.Generation, SpecVersion: was.SpecVersion, PlanEpoch: was.PlanEpoch, Spec: []byte(was.Spec), Drains: was.Drains, PersistedAt: file.Saved}
	return d, d.checkDirective()
}

func hexSHA256(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
