# Keeps one file for each service instance, as a stand-in for real infrastructure.

variable "services" {
  type = map(object({
    id      = string
    address = string
    port    = number
  }))
}

variable "directory" {
  type = string
}

variable "pause" {
  type    = number
  default = 0
}

resource "terraform_data" "rule" {
  for_each = var.services

  input            = "${var.directory}/${each.value.id}"
  triggers_replace = ["${each.value.address}:${each.value.port}"]

  provisioner "local-exec" {
    command = "sleep ${var.pause}; echo '${each.value.address}:${each.value.port}' > '${self.input}'"
  }

  provisioner "local-exec" {
    when    = destroy
    command = "rm -f '${self.input}'"
  }
}

output "rules" {
  value = keys(var.services)
}
