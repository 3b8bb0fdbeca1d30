package specfile

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spillway-lb/spillway/internal/config/strict"
	"github.com/spillway-lb/spillway/internal/spec"
)

// PollInterval is how often a node reads its spec file. A change is in force that much later at most.
const PollInterval = time.Second

// SpecFile is a spec file as it was last read. It is not safe for concurrent use.
type SpecFile struct {
	path      string
	text      []byte    // of the last good file
	writtenAt time.Time // when that was written
}

// New names a file; an empty path is no file. Nothing is read yet.
func New(path string) SpecFile { return SpecFile{path: path} }

// Path is the file's name, empty when there is none.
func (f *SpecFile) Path() string { return f.path }

// Text is the content in force, nil when there is none.
func (f *SpecFile) Text() []byte { return f.text }

// ChangedAt is when the spec in force was written.
func (f *SpecFile) ChangedAt() time.Time { return f.writtenAt }

// ReadChange returns what the file holds when that differs from the version accepted last, nil when it does not.
func (f *SpecFile) ReadChange() (*FileVersion, error) {
	file, err := os.Open(f.path)
	if err != nil {
		return nil, fmt.Errorf("reading the spec: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(file, strict.MaxTextBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading the spec: %w", err)
	}
	if bytes.Equal(text, f.text) {
		return nil, nil
	}
	s, err := spec.DecodeStandalone(f.path, text)
	if err != nil {
		return nil, err
	}
	v := &FileVersion{Spec: s, Text: text}
	if info, err := file.Stat(); err == nil {
		v.writtenAt = info.ModTime()
	}
	return v, nil
}

// FileVersion is one content of a file.
type FileVersion struct {
	Spec      *spec.Spec
	Text      []byte
	writtenAt time.Time
}

// AcceptVersion records that a version is in force. A version that is never accepted is read again.
func (f *SpecFile) AcceptVersion(v *FileVersion) { f.text, f.writtenAt = v.Text, v.writtenAt }
