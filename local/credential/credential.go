// Package credential holds what workers require from their callers: keys, further headers, authorities and client
// certificates, read from files and re-read when those change.
//
// It never prints or logs a value and sends nothing itself. RefreshFiles reads files and belongs to a background
// goroutine; Value loads a pointer, for the request path.
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
	"time"

	"github.com/spillway-lb/spillway/internal/certfile"
	"github.com/spillway-lb/spillway/internal/config"
)

const (
	maxKeyFileBytes = 4096    // of a file with one value
	maxPEMFileBytes = 1 << 20 // of a certificate file
)

// Value is what is currently sent to a worker. It is shared and immutable.
type Value struct {
	// Header replaces the headers of the same names in every request.
	Header http.Header
	// Roots are the authorities for the worker's certificate; nil for the machine's.
	Roots *x509.CertPool
	// Certificates are presented to the worker.
	Certificates []tls.Certificate
	// CertEnds and RootsEnd are the earliest expiry of Certificates and of Roots; zero without any.
	CertEnds, RootsEnd time.Time
	// Err is set while a file has never been read: no request may be sent.
	Err error
}

// String hides the contents.
func (Value) String() string { return "credential" }

// GoString hides the contents.
func (Value) GoString() string { return "credential" }

// Credential is the access configuration of one worker, or of several with the same entry.
type Credential struct {
	access  config.WorkerAccess
	current atomic.Pointer[Value]

	mu           sync.Mutex
	fileContents map[string][]byte // contents of its files at the last read, by key
}

// New reads the files of a for the first time. While a file cannot be read, Value holds the error.
func New(a config.WorkerAccess) *Credential {
	c := &Credential{access: a}
	c.current.Store(&Value{})
	_ = c.RefreshFiles() // the error is in the Value
	return c
}

// String hides the contents.
func (c *Credential) String() string { return "credential" }

// Value is what is currently sent.
func (c *Credential) Value() *Value { return c.current.Load() }

// CertExpiries are the certificates of the credential. They are named by file: workers may share one.
func (c *Credential) CertExpiries() (out certfile.CertExpiries) {
	v := c.Value()
	if !v.CertEnds.IsZero() {
		out = append(out, certfile.CertExpiry{Name: "workers[].tls.cert " + c.access.TLS.Cert, EndsAt: func() time.Time { return v.CertEnds }})
	}
	if !v.RootsEnd.IsZero() {
		out = append(out, certfile.CertExpiry{Name: "workers[].tls.ca " + c.access.TLS.CA, EndsAt: func() time.Time { return v.RootsEnd }})
	}
	return out
}

// RefreshResult is the outcome of RefreshFiles.
type RefreshResult struct {
	// Changed reports a new Value. TLS reports a change that affects new connections.
	Changed, TLS bool
	// Err is why the files are not in force; the last good contents stay.
	Err error
	// ExposedFiles are secret files that every user of the machine may read.
	ExposedFiles []string
}

// RefreshFiles reads the files again.
func (c *Credential) RefreshFiles() RefreshResult {
	c.mu.Lock()
	defer c.mu.Unlock()
	texts, exposed, err := readFiles(&c.access)
	if err == nil && c.fileContents != nil && maps.EqualFunc(texts, c.fileContents, bytes.Equal) {
		return RefreshResult{ExposedFiles: exposed}
	}
	var v *Value
	if err == nil {
		v, err = buildValue(&c.access, texts)
	}
	if err != nil {
		if c.fileContents == nil {
			c.current.Store(&Value{Err: err})
		}
		return RefreshResult{Err: err, ExposedFiles: exposed}
	}
	secure := false
	for key, text := range texts {
		secure = secure || strings.HasPrefix(key, "tls.") && !bytes.Equal(text, c.fileContents[key])
	}
	c.fileContents = texts
	c.current.Store(v)
	return RefreshResult{Changed: true, TLS: secure, ExposedFiles: exposed}
}

// readFiles reads every file of an entry.
func readFiles(a *config.WorkerAccess) (texts map[string][]byte, exposed []string, err error) {
	texts = map[string][]byte{}
	files := a.SecretFiles()
	for _, key := range slices.Sorted(maps.Keys(files)) {
		limit := maxKeyFileBytes
		if strings.HasPrefix(key, "tls.") {
			limit = maxPEMFileBytes
		}
		text, mode, err := readFile(files[key], limit)
		if err != nil {
			return nil, exposed, fmt.Errorf("%s: %w", key, err)
		}
		if key != "tls.ca" && key != "tls.cert" && IsExposed(mode) {
			exposed = append(exposed, files[key])
		}
		texts[key] = text
	}
	return texts, exposed, nil
}

// IsExposed reports whether a file's mode lets every user of the machine read it.
func IsExposed(mode fs.FileMode) bool { return mode.Perm()&0o004 != 0 }

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

// buildValue makes the Value from the contents of the files.
func buildValue(a *config.WorkerAccess, texts map[string][]byte) (*Value, error) {
	v := &Value{Header: http.Header{}}
	for name, value := range a.Headers {
		v.Header.Set(name, value)
	}
	for key, text := range texts {
		if strings.HasPrefix(key, "tls.") {
			continue
		}
		value, err := ParseSecret(text)
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
		v.RootsEnd, _ = certfile.EarliestExpiry(text) // zero if one cannot be parsed, which is then not trusted either
	}
	if text, ok := texts["tls.cert"]; ok {
		pair, err := tls.X509KeyPair(text, texts["tls.key"])
		if err != nil {
			return nil, fmt.Errorf("tls.cert and tls.key: %w", err)
		}
		v.Certificates = []tls.Certificate{pair}
		v.CertEnds, _ = certfile.EarliestExpiry(text) // it was parsed above
	}
	return v, nil
}

// ParseSecret returns a file's one value: printable characters, without surrounding white space. Its error contains
// none of it.
func ParseSecret(text []byte) (string, error) {
	value := strings.TrimSpace(string(text))
	switch {
	case value == "":
		return "", errors.New("the file is empty")
	case !config.IsHeaderValue(value):
		return "", errors.New("the file holds more than one line, or characters that no header may have")
	}
	return value, nil
}
