# One resource for each instance, which is a file in a folder.

variable "services" {
  type = map(object({ id = string }))
}

variable "folder" {
  type = string
}

resource "terraform_data" "rule" {
  for_each = var.services
  input    = "${var.folder}/${each.value.id}"

  provisioner "local-exec" {
    command = "touch '${self.input}'"
  }

  provisioner "local-exec" {
    when    = destroy
    command = "rm '${self.input}'"
  }
}
