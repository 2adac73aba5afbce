# Configuration of consul-terraform-sync; every *.hcl and *.json file in this folder counts.
# `consul-terraform-sync validate -config-dir=/etc/consul-terraform-sync` checks it,
# `systemctl reload consul-terraform-sync` takes over changed tasks.

working_dir = "/var/lib/consul-terraform-sync"

consul {
  address = "127.0.0.1:8500"
}

# task {
#   name   = "firewall"
#   module = "/etc/consul-terraform-sync/modules/firewall"
#   condition "services" {
#     names = ["web"]
#   }
# }
