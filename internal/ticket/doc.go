// Package ticket mints and opens redirect tickets: short signed strings that the global tier puts into the URL of a 307,
// because most clients drop Authorization when a redirect leads to another host. A ticket says which tenant was
// authenticated, for which service and region, and until when.
//
// It decides whether a ticket is ours, whole and still good, and Seen whether one gateway has seen it before: the memory is
// that gateway's own, and another one of the region would take the ticket once more. It never decides what the tenant may
// do, carries no key or prompt, and hides nothing: a ticket's fields are signed, not encrypted.
package ticket
