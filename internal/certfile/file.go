// Package certfile reads certificates and authorities from files, reads them again when the files change, and reports
// when they expire.
//
// A file that cannot be read or parsed never replaces content that is in use.
package certfile

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/internal/telemetry"
)

// fileCheckInterval is the minimum time between two checks of the files' modification times. TLS handshakes trigger the
// checks.
const fileCheckInterval = time.Second

// fileVersion identifies a version of a file without reading the file.
type fileVersion struct {
	modTime time.Time
	size    int64
}

// watchedFile is a value read from one or two files, and read again when one of them changes. It has no goroutine:
// reads of the value trigger the checks.
type watchedFile[T any] struct {
	name      string // for logs
	paths     []string
	load      func() (*T, error)
	log       *slog.Logger
	value     atomic.Pointer[T]
	nextCheck atomic.Int64 // time of the next check, in Unix nanoseconds

	mu             sync.Mutex // held by the one goroutine that checks
	version        [2]fileVersion
	refusedVersion [2]fileVersion
}

// currentValue returns the value in use, after a check of the files if one is due.
func (f *watchedFile[T]) currentValue() *T {
	now, due := time.Now().UnixNano(), f.nextCheck.Load()
	if now >= due && f.nextCheck.CompareAndSwap(due, now+int64(fileCheckInterval)) {
		f.checkFiles()
	}
	return f.value.Load()
}

func (f *watchedFile[T]) checkFiles() {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.readVersions()
	if s == f.version {
		return
	}
	if err := f.loadFiles(s); err != nil && s != f.refusedVersion {
		f.refusedVersion = s
		f.log.Warn("changed certificate file is refused, the content in use stays: correct the file", "certificate", f.name, telemetry.ErrorAttr(err))
	}
}

// Reload reads the files now. On an error the content in use stays.
func (f *watchedFile[T]) Reload() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.loadFiles(f.readVersions())
}

func (f *watchedFile[T]) loadFiles(s [2]fileVersion) error {
	v, err := f.load()
	if err != nil {
		return err
	}
	f.version = s
	if f.value.Swap(v) != nil {
		f.log.Info("certificate file reloaded", "certificate", f.name)
	}
	return nil
}

func (f *watchedFile[T]) readVersions() (s [2]fileVersion) {
	for i, path := range f.paths {
		if st, err := os.Stat(path); err == nil {
			s[i] = fileVersion{modTime: st.ModTime(), size: st.Size()}
		}
	}
	return s
}

// KeyPair is a server's certificate with its private key. A pair that does not match never replaces one that does.
type KeyPair struct{ watchedFile[tls.Certificate] }

// LoadKeyPair reads a certificate and its key. name is the configuration key that sets it, such as "http.tls_cert", for
// messages.
func LoadKeyPair(name, cert, key string, log *slog.Logger) (*KeyPair, error) {
	p := &KeyPair{watchedFile[tls.Certificate]{name: name, paths: []string{cert, key}, log: cmp.Or(log, slog.New(slog.DiscardHandler))}}
	p.load = func() (*tls.Certificate, error) {
		c, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("loading the certificate of %s: %w", name, err)
		}
		return &c, nil
	}
	return p, p.Reload()
}

// GetCertificate implements tls.Config.GetCertificate.
func (p *KeyPair) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return p.currentValue(), nil
}

// Expires returns when the certificate expires.
func (p *KeyPair) Expires() time.Time { return p.currentValue().Leaf.NotAfter }
