// Package ticket mints and opens redirect tickets: short signed strings that the global tier puts into the URL
// of a 307, because most clients drop Authorization when a redirect leads to another host. A ticket names the
// authenticated tenant, the service, the region, and its expiry.
//
// MintTicket and OpenTicket create and verify a RedirectTicket. SeenTickets detects reuse within one gateway;
// another gateway of the region would accept the ticket once more. The package never decides what the tenant
// may do. A ticket contains no key or prompt, and its fields are signed, not encrypted.
package ticket
