package regional

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/internal/telemetry"
)

// frontCert is the certificate that clients see, read again when its files change: at a handshake, at most once a second.
// A pair that does not fit never replaces one that does.
type frontCert struct {
	cert, key string
	log       *slog.Logger
	now       atomic.Pointer[tls.Certificate]
	due       atomic.Int64 // next look at the files, in Unix nanoseconds

	mu     sync.Mutex // held by the one who looks
	stamp  [2]stamp
	warned [2]stamp
}

// stamp is what tells one version of a file from another without reading it.
type stamp struct {
	mod  time.Time
	size int64
}

const certLook = time.Second

func loadFrontCert(cert, key string, log *slog.Logger) (*frontCert, error) {
	c := &frontCert{cert: cert, key: key, log: log}
	return c, c.reload()
}

// get is tls.Config's GetCertificate.
func (c *frontCert) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	now, due := time.Now().UnixNano(), c.due.Load()
	if now >= due && c.due.CompareAndSwap(due, now+int64(certLook)) {
		c.look()
	}
	return c.now.Load(), nil
}

func (c *frontCert) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stamps()
	if s == c.stamp {
		return
	}
	if err := c.read(s); err != nil && s != c.warned {
		c.warned = s
		c.log.Warn("the front door's new certificate is refused, the one in use stays", telemetry.Err(err))
	}
}

// reload reads the files now. On an error the certificate in use stays.
func (c *frontCert) reload() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read(c.stamps())
}

func (c *frontCert) read(s [2]stamp) error {
	cert, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return fmt.Errorf("loading the front door's certificate: %w", err)
	}
	c.stamp = s
	if c.now.Swap(&cert) != nil {
		c.log.Info("the front door's certificate was read again", "expires", cert.Leaf.NotAfter)
	}
	return nil
}

func (c *frontCert) stamps() (s [2]stamp) {
	for i, path := range []string{c.cert, c.key} {
		if st, err := os.Stat(path); err == nil {
			s[i] = stamp{mod: st.ModTime(), size: st.Size()}
		}
	}
	return s
}
