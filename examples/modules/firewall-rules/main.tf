# Keeps a file of firewall rules: one line for each instance of the services
# that Consul-Terraform-Sync hands in. It needs no provider from a registry.

terraform {
  required_version = ">= 1.4.0"
}

variable "services" {
  description = "Consul services monitored by Consul-Terraform-Sync"
  type = map(
    object({
      id      = string
      name    = string
      address = string
      port    = number
      node    = string
    })
  )
}

variable "rules_file" {
  description = "The file to keep"
  type        = string
}

locals {
  rules = sort([
    for service in var.services :
    "allow tcp to ${service.address} port ${service.port} # ${service.name}, ${service.id} on ${service.node}"
  ])
}

resource "terraform_data" "rules" {
  input            = var.rules_file
  triggers_replace = [var.rules_file, local.rules]

  provisioner "local-exec" {
    command = "printf '%s\\n' \"$RULES\" > \"$FILE.new\" && mv \"$FILE.new\" \"$FILE\""
    environment = {
      FILE  = var.rules_file
      RULES = join("\n", local.rules)
    }
  }

  provisioner "local-exec" {
    when    = destroy
    command = "rm -f \"$FILE\""
    environment = {
      FILE = self.input
    }
  }
}

output "rules" {
  value = local.rules
}
