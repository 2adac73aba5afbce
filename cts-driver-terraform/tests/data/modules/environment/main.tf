# Writes a variable of its environment into one file for each service instance.

variable "services" {
  type = map(object({
    id   = string
    port = number
  }))
}

variable "directory" {
  type = string
}

resource "terraform_data" "greeting" {
  for_each = var.services

  input            = "${var.directory}/${each.value.id}"
  triggers_replace = [each.value.port]

  provisioner "local-exec" {
    command = "printenv GREETING > '${self.input}'"
  }
}
