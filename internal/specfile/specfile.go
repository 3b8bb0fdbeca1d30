// Package specfile reads the spec of a node without a global tier from a file, and again whenever the file changes.
//
// The file is never written, and an invalid spec does not replace a valid one.
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

// PollInterval is the time between two reads of the spec file: a change is in force at most that much later.
const PollInterval = time.Second

// SpecFile is the last valid content of a spec file. It is not safe for concurrent use.
type SpecFile struct {
	path      string
	text      []byte    // of the last valid file
	writtenAt time.Time // modification time of that file
}

// New returns the SpecFile of a path; an empty path means that there is no file. It reads nothing.
func New(path string) SpecFile { return SpecFile{path: path} }

// Path returns the file's path, empty if there is no file.
func (f *SpecFile) Path() string { return f.path }

// Text returns the content in force, nil if there is none.
func (f *SpecFile) Text() []byte { return f.text }

// ChangedAt returns the modification time of the spec in force.
func (f *SpecFile) ChangedAt() time.Time { return f.writtenAt }

// ReadChange returns the file's content if it differs from the last accepted version, and nil if it does not.
func (f *SpecFile) ReadChange() (*FileVersion, error) {
	file, err := os.Open(f.path)
	if err != nil {
		return nil, fmt.Errorf("reading the spec: %w", err)
	}
	defer func() { _ = file.Close() }() // the file was only read
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

// FileVersion is one version of the file's content.
type FileVersion struct {
	Spec      *spec.Spec
	Text      []byte
	writtenAt time.Time
}

// AcceptVersion records that a version is in force. A version that is not accepted is read again.
func (f *SpecFile) AcceptVersion(v *FileVersion) { f.text, f.writtenAt = v.Text, v.writtenAt }
