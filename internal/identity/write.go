package identity

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// writePair writes a key and its certificate, key first, each by rename, both readable by their owner only.
func writePair(certPath, keyPath string, der []byte, key *ecdsa.PrivateKey) error {
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("writing key: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(certPath), 0o700); err != nil {
		return fmt.Errorf("writing certificate: %w", err)
	}
	if err := writePEM(keyPath, "PRIVATE KEY", keyDER); err != nil {
		return err
	}
	return writePEM(certPath, "CERTIFICATE", der)
}

func writePEM(path, kind string, der []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".new-*") // created with mode 0600
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer os.Remove(tmp.Name()) // fails harmlessly after the rename
	err = pem.Encode(tmp, &pem.Block{Type: kind, Bytes: der})
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// checkCertOwner returns an error if the file holds a certificate of another identity.
func checkCertOwner(path string, id ID) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("issuing certificate: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return fmt.Errorf("issuing certificate for %s: %s is not a certificate: choose another directory or name", id, path)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return fmt.Errorf("issuing certificate for %s: reading %s: %w", id, path, err)
	}
	switch got, err := leafID(cert); {
	case err != nil:
		return fmt.Errorf("issuing certificate for %s: %s is a certificate of CN=%s that is not one of a node: choose another directory or name", id, path, cert.Subject.CommonName)
	case got != id:
		return fmt.Errorf("issuing certificate for %s: %s is a certificate of %s: choose another directory or name", id, path, got)
	}
	return nil
}
