package dns

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/asn1"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"

	"github.com/miekg/dns"
)

// SigningKey signs a zone: ECDSA P-256 with SHA-256, which is algorithm 13 (RFC 6605). One key is both key-signing
// and zone-signing: every node holds it anyway, so that a separate key would protect nothing, and the DNSKEY set
// stays small.
type SigningKey struct {
	private *ecdsa.PrivateKey
	data    []byte // of its DNSKEY record
	tag     uint16
}

// Fixed fields of our DNSKEY records: a zone key that a DS may refer to.
const (
	keyFlags     = dns.ZONE | dns.SEP
	keyProtocol  = 3
	keyAlgorithm = dns.ECDSAP256SHA256
)

// NewSigningSecret returns the secret of a new random key, and the key's tag.
func NewSigningSecret() (secret []byte, tag uint16, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, 0, fmt.Errorf("making a key: %w", err)
	}
	if secret, err = private.Bytes(); err != nil {
		return nil, 0, fmt.Errorf("making a key: %w", err)
	}
	k, err := NewSigningKey(secret)
	if err != nil {
		return nil, 0, err
	}
	return secret, k.tag, nil
}

// NewSigningKey creates a key from its secret, the scalar in 32 bytes.
func NewSigningKey(secret []byte) (*SigningKey, error) {
	private, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), secret)
	if err != nil {
		return nil, errors.New("the zone key is not an ECDSA P-256 private key") // the cause might reveal the secret
	}
	point, err := private.PublicKey.Bytes()
	if err != nil {
		return nil, fmt.Errorf("encoding the public key: %w", err)
	}
	k := &SigningKey{private: private, data: append([]byte{keyFlags >> 8, keyFlags & 0xff, keyProtocol, keyAlgorithm}, point[1:]...)}
	k.tag = computeKeyTag(k.data)
	return k, nil
}

// computeKeyTag is the key tag of a DNSKEY record's data (RFC 4034, appendix B).
func computeKeyTag(data []byte) uint16 {
	sum := uint32(0)
	for i, c := range data {
		sum += uint32(c) << (8 * (1 - i&1))
	}
	return uint16(sum + sum>>16)
}

// Tag identifies the key among those of a zone; it is not globally unique.
func (k *SigningKey) Tag() uint16 { return k.tag }

// String hides the secret.
func (k *SigningKey) String() string { return fmt.Sprintf("zone key %d", k.tag) }

// GoString hides the secret.
func (k *SigningKey) GoString() string { return k.String() }

// DNSKEY returns the data of the key's record in zone file format.
func (k *SigningKey) DNSKEY() string {
	return fmt.Sprintf("%d %d %d %s", keyFlags, keyProtocol, keyAlgorithm, base64.StdEncoding.EncodeToString(k.data[4:]))
}

// DS returns the data of the key's DS record in the parent zone, with a SHA-256 digest, in zone file format.
func (k *SigningKey) DS(zone string) string {
	d := k.dsData(wireName(zone))
	return fmt.Sprintf("%d %d %d %X", k.tag, keyAlgorithm, dns.SHA256, d[4:])
}

// dsData returns the data of the DS and CDS records.
func (k *SigningKey) dsData(zone []byte) []byte {
	sum := sha256.Sum256(append(append([]byte(nil), zone...), k.data...))
	b := binary.BigEndian.AppendUint16(nil, k.tag)
	return append(append(b, keyAlgorithm, dns.SHA256), sum[:]...)
}

// signatureSize is the size of a signature, in octets (RFC 6605, 4).
const signatureSize = 64

// signHash signs a SHA-256 hash. The signature is deterministic and equal on every node (RFC 6979).
func (k *SigningKey) signHash(dst, sum []byte) ([]byte, error) {
	der, err := k.private.Sign(nil, sum, crypto.SHA256)
	if err != nil {
		return nil, err
	}
	var pair struct{ R, S *big.Int }
	if _, err := asn1.Unmarshal(der, &pair); err != nil {
		return nil, err
	}
	var raw [signatureSize]byte
	pair.R.FillBytes(raw[:signatureSize/2])
	pair.S.FillBytes(raw[signatureSize/2:])
	return append(dst, raw[:]...), nil
}

// newRawRR returns a record of any type with its data in wire format.
func newRawRR(owner string, rtype uint16, ttl uint32, data []byte) *dns.RFC3597 {
	return &dns.RFC3597{
		Hdr:   dns.RR_Header{Name: owner, Rrtype: rtype, Class: dns.ClassINET, Ttl: ttl},
		Rdata: hex.EncodeToString(data),
	}
}
