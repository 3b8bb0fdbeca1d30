package identity

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/internal/certfile"
)

// checkInterval is the minimum time between two checks of the files' modification times. TLS handshakes trigger the
// checks.
const checkInterval = time.Second

// Certs is one node's certificate and the authorities that it trusts, read again when the files change. It is safe for
// concurrent use. It has no goroutine: handshakes trigger the checks.
type Certs struct {
	files     CertFiles
	log       *slog.Logger
	current   atomic.Pointer[certBundle]
	nextCheck atomic.Int64 // time of the next check, in nanoseconds of the monotonic clock since startedAt
	startedAt time.Time

	mu           sync.Mutex   // held by the one goroutine that checks
	stamp        [3]fileStamp // of the files in use
	refusedStamp [3]fileStamp // of the files last refused, so that a bad file is logged once
}

// fileStamp identifies a version of a file without reading the file.
type fileStamp struct {
	modTime time.Time
	size    int64
}

// LoadCerts reads the files. It returns an error for files that peers would refuse. A nil logger discards.
func LoadCerts(f CertFiles, log *slog.Logger) (*Certs, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	c := &Certs{files: f, log: log, startedAt: time.Now()}
	c.stamp = readStamps(f)
	b, err := readBundle(f, time.Now())
	if err != nil {
		return nil, err
	}
	c.current.Store(b)
	c.nextCheck.Store(int64(checkInterval))
	return c, nil
}

// ID returns the node's identity. It does not change while the node runs.
func (c *Certs) ID() ID { return c.current.Load().id }

// Expires returns when the certificate in use expires.
func (c *Certs) Expires() time.Time { return c.current.Load().cert.Leaf.NotAfter }

// Expiries returns the expiries of the files in use.
func (c *Certs) Expiries() certfile.CertExpiries {
	return certfile.CertExpiries{{Name: "tls.cert", EndsAt: c.Expires}, {Name: "tls.ca", EndsAt: c.CAExpires}}
}

// CAExpires returns when the first of the authorities in use expires.
func (c *Certs) CAExpires() time.Time { return c.current.Load().caExpires }

// Reload reads the files now. On an error the certificate in use stays.
func (c *Certs) Reload() error {
	if c.files == (CertFiles{}) { // certificates of NewProcessCerts
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reloadBundle(readStamps(c.files))
}

// currentBundle returns the bundle for one handshake, after a check of the files if one is due.
func (c *Certs) currentBundle() *certBundle {
	at, due := int64(time.Since(c.startedAt)), c.nextCheck.Load()
	if at >= due && c.nextCheck.CompareAndSwap(due, at+int64(checkInterval)) {
		c.checkFiles()
	}
	return c.current.Load()
}

// checkFiles reads the files again if any has changed. Certificate and key are replaced one after the other, so a pair
// that does not match is tried again at each check and logged only once.
func (c *Certs) checkFiles() {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := readStamps(c.files)
	if s == c.stamp {
		return
	}
	if err := c.reloadBundle(s); err != nil && s != c.refusedStamp {
		c.refusedStamp = s
		c.log.Warn("changed certificate files are refused, the certificate in use stays: correct the files", "error", err)
	}
}

func (c *Certs) reloadBundle(s [3]fileStamp) error {
	b, err := readBundle(c.files, time.Now())
	if err != nil {
		return err
	}
	if old := c.current.Load().id; b.id != old {
		return fmt.Errorf("reloading %s: the certificate is of %s, but this node runs as %s: restart the node to change its identity", c.files.Cert, b.id, old)
	}
	c.stamp = s
	c.current.Store(b)
	c.log.Info("certificate files reloaded", "id", b.id.String(), "expires", b.cert.Leaf.NotAfter)
	return nil
}

// readStamps returns the three files' modification times and sizes. A file without access has the zero stamp.
func readStamps(f CertFiles) (s [3]fileStamp) {
	for i, path := range []string{f.Cert, f.Key, f.CA} {
		if st, err := os.Stat(path); err == nil {
			s[i] = fileStamp{modTime: st.ModTime(), size: st.Size()}
		}
	}
	return s
}

// Fleet identifies the installation that the node belongs to, by its trust domain and its authority. Certificates of
// NewProcessCerts identify their process.
func (c *Certs) Fleet() string {
	b := c.current.Load()
	sum := sha256.Sum256(b.rootCert.Raw)
	return b.id.TrustDomain + "/" + hex.EncodeToString(sum[:4])
}

// CertFiles are the PEM files of one node: its certificate chain, leaf first; its private key; the authorities that it
// trusts.
type CertFiles struct {
	Cert string
	Key  string
	CA   string
}

// maxPEMBytes bounds each file. Real certificate chains are far smaller.
const maxPEMBytes = 1 << 20

// certBundle is the content of the three files at one moment. It is immutable.
type certBundle struct {
	cert  tls.Certificate
	roots *x509.CertPool
	id    ID

	caExpires time.Time         // of the first authority to expire
	rootCert  *x509.Certificate // the authority that cert chains to
}

// readBundle reads and checks the files: the key matches the certificate, the certificate chains to the authority, is
// valid at now, and contains one identity. With these checks a node whose certificate every peer would refuse fails at
// its start.
func readBundle(f CertFiles, now time.Time) (*certBundle, error) {
	certPEM, err := readPEM(f.Cert)
	if err != nil {
		return nil, err
	}
	keyPEM, err := readPEM(f.Key)
	if err != nil {
		return nil, err
	}
	caPEM, err := readPEM(f.CA)
	if err != nil {
		return nil, err
	}
	b := &certBundle{roots: x509.NewCertPool()}
	if b.cert, err = tls.X509KeyPair(certPEM, keyPEM); err != nil {
		return nil, fmt.Errorf("reading certificate %s with key %s: %w", f.Cert, f.Key, err)
	}
	if !b.roots.AppendCertsFromPEM(caPEM) {
		return nil, fmt.Errorf("reading authority %s: the file has no PEM certificate", f.CA)
	}
	if b.caExpires, err = certfile.EarliestExpiry(caPEM); err != nil {
		return nil, fmt.Errorf("reading authority %s: %w", f.CA, err)
	}
	if b.id, err = leafID(b.cert.Leaf); err != nil {
		return nil, fmt.Errorf("reading certificate %s: %w", f.Cert, err)
	}
	if err := b.verifyChains(now); err != nil {
		return nil, fmt.Errorf("checking certificate %s against authority %s: %w", f.Cert, f.CA, err)
	}
	return b, nil
}

// verifyChains verifies the node's own certificate for both directions: every node dials and listens with the same one.
func (b *certBundle) verifyChains(now time.Time) error {
	inter := x509.NewCertPool()
	for _, der := range b.cert.Certificate[1:] {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return fmt.Errorf("reading intermediate: %w", err)
		}
		inter.AddCert(c)
	}
	for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		chains, err := b.cert.Leaf.Verify(x509.VerifyOptions{
			Roots: b.roots, Intermediates: inter, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{use},
		})
		if err != nil {
			return err
		}
		if chain := chains[0]; b.rootCert == nil {
			b.rootCert = chain[len(chain)-1]
		}
	}
	return nil
}

func readPEM(path string) ([]byte, error) {
	if path == "" {
		return nil, errors.New("no certificate files are configured: set cert, key and ca (`spillway certs dev` creates them)")
	}
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("reading certificates: %w", err)
	}
	if !st.Mode().IsRegular() || st.Size() > maxPEMBytes {
		return nil, fmt.Errorf("reading certificates: %s is not a regular file of at most %d bytes", path, maxPEMBytes)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading certificates: %w", err)
	}
	return text, nil
}
