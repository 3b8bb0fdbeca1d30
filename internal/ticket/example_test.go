package ticket_test

import (
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/internal/ticket"
)

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
