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

// File is a spec file as it was last read. It is not safe for concurrent use.
type File struct {
	path string
	text []byte    // of the last good file
	at   time.Time // when that was written
}

// New names a file; an empty path is no file. Nothing is read yet.
func New(path string) File { return File{path: path} }

// Path is the file's name, empty when there is none.
func (f *File) Path() string { return f.path }

// Text is the content in force, nil when there is none.
func (f *File) Text() []byte { return f.text }

// ChangedAt is when the spec in force was written.
func (f *File) ChangedAt() time.Time { return f.at }

// Read returns what the file holds when that differs from the version accepted last, nil when it does not.
func (f *File) Read() (*Version, error) {
	file, err := os.Open(f.path)
	if err != nil {
		return nil, fmt.Errorf("reading the spec: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(file, strict.MaxText+1))
	if err != nil {
		return nil, fmt.Errorf("reading the spec: %w", err)
	}
	if bytes.Equal(text, f.text) {
		return nil, nil
	}
	s, err := spec.DecodeAlone(f.path, text)
	if err != nil {
		return nil, err
	}
	v := &Version{Spec: s, Text: text}
	if info, err := file.Stat(); err == nil {
		v.at = info.ModTime()
	}
	return v, nil
}

// Version is one content of a file.
type Version struct {
	Spec *spec.Spec
	Text []byte
	at   time.Time
}

// Accept records that a version is in force. A version that is never accepted is read again.
func (f *File) Accept(v *Version) { f.text, f.at = v.Text, v.at }
