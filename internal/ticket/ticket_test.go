package ticket_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/ticket"
	"pgregory.net/rapid"
)

var (
	oldKey       = bytes.Repeat([]byte{1}, 32)
	newKey       = bytes.Repeat([]byte{2}, 32)
	testNow      = time.Unix(1_800_000_000, 0)
	sampleTicket = ticket.RedirectTicket{Tenant: "acme", Service: "chat.api.example.", Region: "virginia", Expires: testNow.Add(time.Minute), Nonce: 7}
)

func TestOpenTicket(t *testing.T) {
	good := ticket.MintTicket(oldKey, sampleTicket)
	flip := []byte(good)
	flip[30] ^= 1
	for name, c := range map[string]struct {
		keys [][]byte
		text string
		at   time.Time
		want error
	}{
		"good":             {[][]byte{oldKey}, good, testNow, nil},
		"older of two":     {[][]byte{newKey, oldKey}, good, testNow, nil},
		"last good second": {[][]byte{oldKey}, good, sampleTicket.Expires.Add(-time.Nanosecond), nil},
		"expired":          {[][]byte{oldKey}, good, sampleTicket.Expires, ticket.ErrExpired},
		"rotated out":      {[][]byte{newKey}, good, testNow, ticket.ErrForged},
		"no keys":          {nil, good, testNow, ticket.ErrForged},
		"changed":          {[][]byte{oldKey}, string(flip), testNow, ticket.ErrForged},
		"forged, expired":  {[][]byte{newKey}, good, sampleTicket.Expires, ticket.ErrForged},
		"empty":            {[][]byte{oldKey}, "", testNow, ticket.ErrMalformed},
		"cut short":        {[][]byte{oldKey}, good[:20], testNow, ticket.ErrMalformed},
		"not base64":       {[][]byte{oldKey}, good + "!", testNow, ticket.ErrMalformed},
		"with a line end":  {[][]byte{oldKey}, good + "\n", testNow, ticket.ErrMalformed},
		"padded":           {[][]byte{oldKey}, good + "==", testNow, ticket.ErrMalformed},
		"huge":             {[][]byte{oldKey}, strings.Repeat("A", 1<<20), testNow, ticket.ErrMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ticket.OpenTicket(c.keys, c.text, c.at)
			if !errors.Is(err, c.want) {
				t.Fatalf("error %v, want %v", err, c.want)
			}
			if err == nil && (got.Tenant != "acme" || got.Nonce != 7 || !got.Expires.Equal(sampleTicket.Expires)) {
				t.Fatalf("opened as %+v", got)
			}
			if err != nil && got != (ticket.RedirectTicket{}) {
				t.Fatalf("a refused ticket still says %+v", got)
			}
		})
	}
}

func TestWeakKeysNeitherSignNorOpen(t *testing.T) {
	if s := ticket.MintTicket(nil, sampleTicket); s != "" {
		t.Errorf("signed with no key: %q", s)
	}
	if s := ticket.MintTicket(oldKey[:ticket.MinKeyBytes-1], sampleTicket); s != "" {
		t.Errorf("signed with a short key: %q", s)
	}
	long := sampleTicket
	long.Tenant = strings.Repeat("t", 256)
	if s := ticket.MintTicket(oldKey, long); s != "" {
		t.Error("a field of 256 bytes is carried")
	}
}

func TestTicketIsShortAndURLSafe(t *testing.T) {
	s := ticket.MintTicket(oldKey, sampleTicket)
	if len(s) > 100 || strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
		t.Fatalf("%d characters: %q", len(s), s)
	}
}

func TestMintedTicketOpensUnchanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		field := rapid.StringN(-1, -1, 255)
		in := ticket.RedirectTicket{
			Tenant: field.Draw(t, "tenant"), Service: field.Draw(t, "service"), Region: field.Draw(t, "region"),
			Expires: time.Unix(rapid.Int64Range(1, 1<<40-1).Draw(t, "expires"), 0), Nonce: rapid.Uint64().Draw(t, "nonce"),
			Client: rapid.SampledFrom([]string{"", "", "192.0.2.7", "2001:db8::1"}).Draw(t, "client"),
		}
		out, err := ticket.OpenTicket([][]byte{newKey, oldKey}, ticket.MintTicket(oldKey, in), in.Expires.Add(-time.Second))
		if err != nil || out != in {
			t.Fatalf("%+v became %+v, %v", in, out, err)
		}
	})
}

// FuzzOpenTicket: an accepted ticket is exactly what MintTicket would write.
func FuzzOpenTicket(f *testing.F) {
	f.Add(ticket.MintTicket(oldKey, sampleTicket))
	passed := sampleTicket
	passed.Client = "192.0.2.7"
	f.Add(ticket.MintTicket(oldKey, passed))
	f.Add("")
	f.Add(strings.Repeat("A", 60))
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ticket.OpenTicket([][]byte{oldKey}, s, testNow)
		if err == nil && ticket.MintTicket(oldKey, got) != s {
			t.Fatalf("%q opens as %+v, which is minted otherwise", s, got)
		}
	})
}

func BenchmarkOpenTicket(b *testing.B) {
	s, keys := ticket.MintTicket(oldKey, sampleTicket), [][]byte{newKey, oldKey}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ticket.OpenTicket(keys, s, testNow); err != nil {
			b.Fatal(err)
		}
	}
}

// Only the first eight keys are tried: each costs a hash, and the list comes from another node.
func TestOnlyFirstKeysAreTried(t *testing.T) {
	const tried = 8
	var keys [][]byte
	for i := range 2 * tried {
		keys = append(keys, bytes.Repeat([]byte{byte(i + 1)}, 32))
	}
	for i, key := range keys {
		text := ticket.MintTicket(key, ticket.RedirectTicket{Tenant: "acme", Service: "chat.", Region: "fra", Expires: testNow.Add(ticket.Lifetime), Nonce: 1})
		_, err := ticket.OpenTicket(keys, text, testNow)
		if i < tried && err != nil || i >= tried && !errors.Is(err, ticket.ErrForged) {
			t.Errorf("key %d: %v", i, err)
		}
	}
}

// TestTicketIsNewExactlyOnce compares random tickets at random times with a plain set.
func TestTicketIsNewExactlyOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, shown, at := ticket.NewSeenTickets(1000), map[ticket.RedirectTicket]bool{}, testNow
		for range rapid.IntRange(1, 300).Draw(t, "calls") {
			at = at.Add(time.Duration(rapid.Int64Range(0, int64(5*time.Second)).Draw(t, "later")))
			k := ticket.RedirectTicket{
				Nonce:   rapid.Uint64Range(0, 20).Draw(t, "nonce"),
				Expires: at.Truncate(10 * time.Second).Add(ticket.Lifetime),
			}
			if first := s.MarkSeen(k, at); first == shown[k] {
				t.Fatalf("%+v at %s is first: %v, shown before: %v", k, at, first, shown[k])
			}
			shown[k] = true
		}
	})
}

// TestSeenTicketsForgetsOldest: a flood needs bounded memory, and of the last limit tickets none is accepted
// twice.
func TestSeenTicketsForgetsOldest(t *testing.T) {
	const limit = 100
	s := ticket.NewSeenTickets(limit)
	at := func(n uint64) ticket.RedirectTicket {
		return ticket.RedirectTicket{Nonce: n, Expires: testNow.Add(ticket.Lifetime)}
	}
	for n := range uint64(10 * limit) {
		if !s.MarkSeen(at(n), testNow) {
			t.Fatalf("ticket %d is taken for one seen", n)
		}
	}
	for n := uint64(9 * limit); n < 10*limit; n++ {
		if s.MarkSeen(at(n), testNow) {
			t.Errorf("ticket %d opens twice", n)
		}
	}
	if !s.MarkSeen(at(0), testNow) {
		t.Error("more than twice the limit is remembered")
	}
}

func TestExpiryTooFarAheadIsRefused(t *testing.T) {
	k := ticket.RedirectTicket{Expires: testNow.Add(ticket.Lifetime + ticket.MaxClockSkew)}
	if _, err := ticket.OpenTicket([][]byte{oldKey}, ticket.MintTicket(oldKey, k), testNow); err != nil {
		t.Errorf("a ticket of a clock that is %s ahead: %v", ticket.MaxClockSkew, err)
	}
	k.Expires = k.Expires.Add(time.Second)
	if _, err := ticket.OpenTicket([][]byte{oldKey}, ticket.MintTicket(oldKey, k), testNow); !errors.Is(err, ticket.ErrExpiryTooFar) {
		t.Errorf("a ticket that outlives what is remembered: %v", err)
	}
}

// A global node signs a ticket; a gateway that has the key opens it until it expires.
func ExampleOpenTicket() {
	key, now := []byte("a key of at least 32 bytes, drawn at random"), time.Unix(1_800_000_000, 0)
	text := ticket.MintTicket(key, ticket.RedirectTicket{
		Tenant: "acme", Service: "chat.api.example", Region: "fra", Expires: now.Add(30 * time.Second), Nonce: 1,
	})
	t, err := ticket.OpenTicket([][]byte{key}, text, now)
	fmt.Println(t.Tenant, t.Region, err)
	_, err = ticket.OpenTicket([][]byte{key}, text, now.Add(time.Minute))
	fmt.Println(err)
	_, err = ticket.OpenTicket([][]byte{[]byte("another key of at least 32 bytes .......")}, text, now)
	fmt.Println(err)
	// Output:
	// acme fra <nil>
	// ticket has expired
	// ticket is not signed by a key in use
}
