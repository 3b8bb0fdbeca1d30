// Package ticket mints and opens redirect tickets: short signed strings that the global tier puts into the URL of a 307,
// because most clients drop Authorization when a redirect leads to another host. A ticket says which tenant was
// authenticated, for which service and region, and until when.
//
// It decides whether a ticket is ours, whole and still good. It never decides what the tenant may do, keeps no memory of
// tickets seen (a ticket may be used more than once until it expires), carries no key or prompt, and hides nothing: its
// fields are signed, not encrypted.
package ticket
