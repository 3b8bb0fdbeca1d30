package ticket_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/ticket"
	"pgregory.net/rapid"
)

var (
	oldKey = bytes.Repeat([]byte{1}, 32)
	newKey = bytes.Repeat([]byte{2}, 32)
	now    = time.Unix(1_800_000_000, 0)
	sample = ticket.Ticket{Tenant: "acme", Service: "chat.api.example.", Region: "virginia", Expires: now.Add(time.Minute), Nonce: 7}
)

func TestOpen(t *testing.T) {
	good := ticket.Mint(oldKey, sample)
	flip := []byte(good)
	flip[30] ^= 1
	for name, c := range map[string]struct {
		keys [][]byte
		text string
		at   time.Time
		want error
	}{
		"good":             {[][]byte{oldKey}, good, now, nil},
		"older of two":     {[][]byte{newKey, oldKey}, good, now, nil},
		"last good second": {[][]byte{oldKey}, good, sample.Expires.Add(-time.Nanosecond), nil},
		"expired":          {[][]byte{oldKey}, good, sample.Expires, ticket.ErrExpired},
		"rotated out":      {[][]byte{newKey}, good, now, ticket.ErrForged},
		"no keys":          {nil, good, now, ticket.ErrForged},
		"changed":          {[][]byte{oldKey}, string(flip), now, ticket.ErrForged},
		"forged, expired":  {[][]byte{newKey}, good, sample.Expires, ticket.ErrForged},
		"empty":            {[][]byte{oldKey}, "", now, ticket.ErrMalformed},
		"cut short":        {[][]byte{oldKey}, good[:20], now, ticket.ErrMalformed},
		"not base64":       {[][]byte{oldKey}, good + "!", now, ticket.ErrMalformed},
		"with a line end":  {[][]byte{oldKey}, good + "\n", now, ticket.ErrMalformed},
		"padded":           {[][]byte{oldKey}, good + "==", now, ticket.ErrMalformed},
		"huge":             {[][]byte{oldKey}, strings.Repeat("A", 1<<20), now, ticket.ErrMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ticket.Open(c.keys, c.text, c.at)
			if !errors.Is(err, c.want) {
				t.Fatalf("error %v, want %v", err, c.want)
			}
			if err == nil && (got.Tenant != "acme" || got.Nonce != 7 || !got.Expires.Equal(sample.Expires)) {
				t.Fatalf("opened as %+v", got)
			}
			if err != nil && got != (ticket.Ticket{}) {
				t.Fatalf("a refused ticket still says %+v", got)
			}
		})
	}
}

func TestWeakKeysNeitherSignNorOpen(t *testing.T) {
	if s := ticket.Mint(nil, sample); s != "" {
		t.Errorf("signed with no key: %q", s)
	}
	if s := ticket.Mint(oldKey[:ticket.MinKey-1], sample); s != "" {
		t.Errorf("signed with a short key: %q", s)
	}
	long := sample
	long.Tenant = strings.Repeat("t", 256)
	if s := ticket.Mint(oldKey, long); s != "" {
		t.Error("a field of 256 bytes is carried")
	}
}

func TestShortAndURLSafe(t *testing.T) {
	s := ticket.Mint(oldKey, sample)
	if len(s) > 100 || strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
		t.Fatalf("%d characters: %q", len(s), s)
	}
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		field := rapid.StringN(-1, -1, 255)
		in := ticket.Ticket{
			Tenant: field.Draw(t, "tenant"), Service: field.Draw(t, "service"), Region: field.Draw(t, "region"),
			Expires: time.Unix(rapid.Int64Range(1, 1<<40-1).Draw(t, "expires"), 0), Nonce: rapid.Uint64().Draw(t, "nonce"),
			Client: rapid.SampledFrom([]string{"", "", "192.0.2.7", "2001:db8::1"}).Draw(t, "client"),
		}
		out, err := ticket.Open([][]byte{newKey, oldKey}, ticket.Mint(oldKey, in), in.Expires.Add(-time.Second))
		if err != nil || out != in {
			t.Fatalf("%+v became %+v, %v", in, out, err)
		}
	})
}

// FuzzOpen holds that whatever opens is exactly what Mint would have written.
func FuzzOpen(f *testing.F) {
	f.Add(ticket.Mint(oldKey, sample))
	passed := sample
	passed.Client = "192.0.2.7"
	f.Add(ticket.Mint(oldKey, passed))
	f.Add("")
	f.Add(strings.Repeat("A", 60))
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ticket.Open([][]byte{oldKey}, s, now)
		if err == nil && ticket.Mint(oldKey, got) != s {
			t.Fatalf("%q opens as %+v, which is minted otherwise", s, got)
		}
	})
}

func BenchmarkOpen(b *testing.B) {
	s, keys := ticket.Mint(oldKey, sample), [][]byte{newKey, oldKey}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ticket.Open(keys, s, now); err != nil {
			b.Fatal(err)
		}
	}
}

// Only the first eight keys are tried: each costs a hash, and the list comes from another node.
func TestOnlyTheFirstKeysAreTried(t *testing.T) {
	const tried = 8
	var keys [][]byte
	for i := range 2 * tried {
		keys = append(keys, bytes.Repeat([]byte{byte(i + 1)}, 32))
	}
	for i, key := range keys {
		text := ticket.Mint(key, ticket.Ticket{Tenant: "acme", Service: "chat.", Region: "fra", Expires: now.Add(ticket.Life), Nonce: 1})
		_, err := ticket.Open(keys, text, now)
		if i < tried && err != nil || i >= tried && !errors.Is(err, ticket.ErrForged) {
			t.Errorf("key %d: %v", i, err)
		}
	}
}
