package credential

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/spillway-lb/spillway/internal/config"
)

const (
	maxKeyFile = 4096    // bytes of a file with one value
	maxPEMFile = 1 << 20 // bytes of a certificate's file
)

// Value is what is sent to a worker now. It is shared and never changed.
type Value struct {
	// Header replaces the headers of the same names in every request.
	Header http.Header
	// Roots sign the worker's certificate; nil for the machine's.
	Roots *x509.CertPool
	// Certificates are shown to the worker.
	Certificates []tls.Certificate
	// Err is why a file was never read: no request may be sent.
	Err error
}

// String hides the contents.
func (Value) String() string { return "credential" }

// GoString hides the contents.
func (Value) GoString() string { return "credential" }

// Credential is what one worker, or several with the same entry, require.
type Credential struct {
	access config.WorkerAccess
	now    atomic.Pointer[Value]

	mu    sync.Mutex
	texts map[string][]byte // contents of its files when they were last read, by key
}

// New reads the files of a for the first time. A file that cannot be read is the Value's error until it can.
func New(a config.WorkerAccess) *Credential {
	c := &Credential{access: a}
	c.now.Store(&Value{})
	_ = c.Refresh() // the error is in the Value
	return c
}

// String hides the contents.
func (c *Credential) String() string { return "credential" }

// Value is what is sent now.
func (c *Credential) Value() *Value { return c.now.Load() }

// Change is the outcome of a Refresh.
type Change struct {
	// Changed: another Value is in force. TLS: what connections are made with has changed.
	Changed, TLS bool
	// Err is why the files are not in force as they are; the last good contents stay so.
	Err error
	// Exposed are files of secrets that every user of the machine may read.
	Exposed []string
}

// Refresh reads the files again.
func (c *Credential) Refresh() Change {
	c.mu.Lock()
	defer c.mu.Unlock()
	texts, exposed, err := read(&c.access)
	if err == nil && c.texts != nil && maps.EqualFunc(texts, c.texts, bytes.Equal) {
		return Change{Exposed: exposed}
	}
	var v *Value
	if err == nil {
		v, err = build(&c.access, texts)
	}
	if err != nil {
		if c.texts == nil {
			c.now.Store(&Value{Err: err})
		}
		return Change{Err: err, Exposed: exposed}
	}
	secure := false
	for key, text := range texts {
		secure = secure || strings.HasPrefix(key, "tls.") && !bytes.Equal(text, c.texts[key])
	}
	c.texts = texts
	c.now.Store(v)
	return Change{Changed: true, TLS: secure, Exposed: exposed}
}

// read reads every file of an entry.
func read(a *config.WorkerAccess) (texts map[string][]byte, exposed []string, err error) {
	texts = map[string][]byte{}
	files := a.Files()
	for _, key := range slices.Sorted(maps.Keys(files)) {
		limit := maxKeyFile
		if strings.HasPrefix(key, "tls.") {
			limit = maxPEMFile
		}
		text, mode, err := readFile(files[key], limit)
		if err != nil {
			return nil, exposed, fmt.Errorf("%s: %w", key, err)
		}
		if key != "tls.ca" && key != "tls.cert" && Exposed(mode) {
			exposed = append(exposed, files[key])
		}
		texts[key] = text
	}
	return texts, exposed, nil
}

// Exposed reports whether a file's mode lets every user of the machine read it.
func Exposed(mode fs.FileMode) bool { return mode.Perm()&0o004 != 0 }

func readFile(name string, limit int) ([]byte, fs.FileMode, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	text, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err != nil {
		return nil, 0, err
	}
	if len(text) > limit {
		return nil, 0, fmt.Errorf("%s is larger than %d bytes", name, limit)
	}
	return text, st.Mode(), nil
}

// build makes the Value of what the files hold.
func build(a *config.WorkerAccess, texts map[string][]byte) (*Value, error) {
	v := &Value{Header: http.Header{}}
	for name, value := range a.Headers {
		v.Header.Set(name, value)
	}
	for key, text := range texts {
		if strings.HasPrefix(key, "tls.") {
			continue
		}
		value, err := Parse(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		if name, ok := strings.CutPrefix(key, "header_files."); ok {
			v.Header.Set(name, value)
		} else {
			v.Header.Set("Authorization", "Bearer "+value)
		}
	}
	if text, ok := texts["tls.ca"]; ok {
		v.Roots = x509.NewCertPool()
		if !v.Roots.AppendCertsFromPEM(text) {
			return nil, errors.New("tls.ca: the file holds no certificate")
		}
	}
	if text, ok := texts["tls.cert"]; ok {
		pair, err := tls.X509KeyPair(text, texts["tls.key"])
		if err != nil {
			return nil, fmt.Errorf("tls.cert and tls.key: %w", err)
		}
		v.Certificates = []tls.Certificate{pair}
	}
	return v, nil
}

// Parse reads a file's one value: printable characters, with white space around them left out. Its error holds none of it.
func Parse(text []byte) (string, error) {
	value := strings.TrimSpace(string(text))
	switch {
	case value == "":
		return "", errors.New("the file is empty")
	case !config.HeaderValue(value):
		return "", errors.New("the file holds more than one line, or characters that no header may have")
	}
	return value, nil
}
