# Writes the AWS identity in its environment into one file for each service instance.

variable "services" {
  type = map(object({
    id   = string
    port = number
  }))
}

variable "directory" {
  type = string
}

resource "terraform_data" "identity" {
  for_each = var.services

  input            = "${var.directory}/${each.value.id}"
  triggers_replace = [each.value.port]

  provisioner "local-exec" {
    command = "echo \"$AWS_ACCESS_KEY_ID/$AWS_SECRET_ACCESS_KEY\" > '${self.input}'"
  }
}
