package fault

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/internal/identity"
)

// certInjury replaces the certificates of nodes, and restores them. A node reads changed files at its next handshakes, and
// keeps the certificate in use if the new one is invalid; with restart it has to start with the new one.
type certInjury struct {
	files   *fleet.Files
	restart *processKill
	log     *slog.Logger
}

func (k *certInjury) findVictims(s Spec) ([]string, error) {
	nodes, err := selectProcesses(k.files, s, func() (string, error) { return findLeader(k.files) })
	var out []string
	for _, n := range nodes {
		if _, _, ok := k.files.CertFiles(n); ok {
			out = append(out, n.ID())
		}
	}
	if err == nil && len(out) == 0 {
		err = fmt.Errorf("%s: %s has no certificate", s.Kind, describeTarget(s))
	}
	return out, err
}

// backupDir holds what a fault replaced, until it is restored.
func (k *certInjury) backupDir(l *lease, id string) string {
	return filepath.Join(faultDir(k.files), "replaced", l.Spec.ID, id)
}

func (k *certInjury) apply(ctx context.Context, l *lease) error {
	var errs []error
	for _, id := range l.Victims {
		errs = append(errs, k.replaceCert(ctx, l, id))
	}
	return errors.Join(errs...)
}

func (k *certInjury) replaceCert(ctx context.Context, l *lease, id string) error {
	n, ok := k.files.FindNode(id)
	if !ok {
		return fmt.Errorf("%s is no node", id)
	}
	who, files, _ := k.files.CertFiles(n)
	backup := k.backupDir(l, id)
	done := filepath.Join(backup, "done")
	if _, err := os.Stat(done); err == nil { // renewed, or restored by another process
		return nil
	}
	fresh, err := k.issueCert(l.Spec, who)
	if err != nil {
		return err
	}
	defer os.RemoveAll(filepath.Dir(fresh.Cert))
	if err := saveFiles(backup, files.Cert, files.Key); err != nil {
		return err
	}
	if err := errors.Join(copyFile(fresh.Key, files.Key), copyFile(fresh.Cert, files.Cert)); err != nil {
		return err
	}
	if err := os.WriteFile(done, nil, 0o600); err != nil {
		return err
	}
	if k.needsRestart(l.Spec) {
		return k.restartNode(ctx, id)
	}
	return nil
}

func (k *certInjury) needsRestart(s Spec) bool {
	in, _ := FindKind(s.Kind)
	return in.param(s, "restart") == "yes"
}

// restartNode kills a node and starts it again.
func (k *certInjury) restartNode(ctx context.Context, id string) error {
	if pid := k.files.RunningPID(id); pid != 0 {
		if err := killProcess(pid); err != nil {
			return err
		}
		waitGone(ctx, k.files, id, pid)
	}
	return startNode(k.files, k.restart.binary, id, k.log)
}

// issueCert writes the certificate of a fault to a temporary directory.
func (k *certInjury) issueCert(s Spec, who identity.ID) (identity.CertFiles, error) {
	dir, err := os.MkdirTemp(faultDir(k.files), "cert-*")
	if err != nil {
		return identity.CertFiles{}, err
	}
	in, _ := FindKind(s.Kind)
	authority, ttl := k.files.CertDir(), 30*24*time.Hour
	switch s.Kind {
	case CertExpired:
		ttl, err = time.ParseDuration(in.param(s, "ttl"))
	case CertWrongCA:
		authority = dir
	case CertWrongRole:
		who = identity.ID{TrustDomain: who.TrustDomain, Role: identity.RoleOperator, Name: who.Name}
	}
	var out identity.CertFiles
	if err == nil {
		var ca *identity.DevCA
		if ca, err = identity.NewDevCA(authority, who.TrustDomain); err == nil {
			out, err = ca.IssueCert(who, dir, ttl)
		}
	}
	if err != nil {
		return out, errors.Join(err, os.RemoveAll(dir))
	}
	return out, nil
}

// saveFiles copies files to a directory unless they are there.
func saveFiles(dir string, paths ...string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, p := range paths {
		at := filepath.Join(dir, filepath.Base(p))
		if _, err := os.Stat(at); err == nil {
			continue
		}
		if err := copyFile(p, at); err != nil {
			return err
		}
	}
	return nil
}

// copyFile replaces a file by a copy of another, with its mode and the time of now.
func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	st, err := os.Stat(from)
	if err != nil {
		return err
	}
	return replaceFile(to, b, st.Mode().Perm())
}

func (k *certInjury) clear(ctx context.Context, l *lease) error {
	var errs []error
	for _, id := range l.Victims {
		errs = append(errs, k.restoreCert(ctx, l, id))
	}
	return errors.Join(errs...)
}

func (k *certInjury) restoreCert(ctx context.Context, l *lease, id string) error {
	n, ok := k.files.FindNode(id)
	backup := k.backupDir(l, id)
	if _, err := os.Stat(backup); errors.Is(err, fs.ErrNotExist) || !ok {
		return nil // restored before, or never replaced
	}
	_, files, _ := k.files.CertFiles(n)
	for _, p := range []string{files.Key, files.Cert} {
		if err := copyFile(filepath.Join(backup, filepath.Base(p)), p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if k.needsRestart(l.Spec) || k.files.RunningPID(id) == 0 {
		if err := k.restartNode(ctx, id); err != nil {
			return err
		}
	}
	return os.RemoveAll(backup)
}

// probe compares the files with those of the fault, and reads the certificate that the node presents.
func (k *certInjury) probe(_ context.Context, l *lease) (bool, string, error) {
	var text []string
	injured := 0
	for _, id := range l.Victims {
		n, _ := k.files.FindNode(id)
		_, files, _ := k.files.CertFiles(n)
		_, err := os.Stat(k.backupDir(l, id))
		replaced := err == nil
		presented, err := readPresentedCert(n)
		switch {
		case err != nil:
			text = append(text, fmt.Sprintf("%s presents no certificate: %v", id, err))
		default:
			text = append(text, fmt.Sprintf("%s presents serial %x, valid until %s", id, presented.SerialNumber, presented.NotAfter.Format(time.RFC3339)))
		}
		inFile, fileErr := readCertFile(files.Cert)
		switch {
		case !l.Ended && replaced:
			injured++
		case l.Ended && (replaced || err != nil || fileErr != nil || !presented.Equal(inFile)):
			injured++ // the node presents the certificate of its file only after its next handshakes
		}
	}
	if l.Ended {
		return injured > 0, strings.Join(text, ", "), nil
	}
	return injured == len(l.Victims), strings.Join(text, ", "), nil
}

func readCertFile(path string) (*x509.Certificate, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return nil, fmt.Errorf("%s has no PEM block", path)
	}
	return x509.ParseCertificate(block.Bytes)
}

// readPresentedCert connects to a node's TLS port and returns its certificate. The node then closes the connection, which
// has no client certificate.
func readPresentedCert(n fleet.Node) (*x509.Certificate, error) {
	purpose := map[string]string{"global": "raft", "regional": "peer", "local": "http"}[n.Role]
	var got *x509.Certificate
	cfg := &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(cs tls.ConnectionState) error { //nolint:gosec // only read
		if len(cs.PeerCertificates) > 0 {
			got = cs.PeerCertificates[0]
		}
		return nil
	}}
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: 2 * time.Second}, "tcp", n.Addr[purpose].String(), cfg)
	if err == nil {
		c.Close()
	}
	if got == nil {
		return nil, errors.Join(errors.New("no certificate was presented"), err)
	}
	return got, nil
}
