package settings

import "github.com/toolsd/toolsd/watcher/clientconfig"

// slugs are the clients that "clients" may switch off.
func slugs() []string {
	var all []string
	for _, c := range clientconfig.Clients() {
		all = append(all, c.Slug)
	}
	return all
}
